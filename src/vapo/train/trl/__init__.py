"""TRL's GRPO trainer with an admission hook before its loss, and a reward function that abstains.

Two modes, named in what they log. `VapoGRPOTrainer` (`baseline: observed`) computes advantages from all observed
verdicts and then drops what was abstained from. `reward` (`baseline: admitted`), for people who keep their own trainer,
returns None for it, so that the trainer's baseline is that of the admitted.
"""

from vapo.train.attach import Observed
from vapo.train.trl.reward import reward
from vapo.train.trl.trainer import VapoGRPOTrainer

__all__ = ["Observed", "VapoGRPOTrainer", "reward"]
