"""What a certificate promises, as pure functions of counts."""
