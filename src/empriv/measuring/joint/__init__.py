"""The risk of several numbers released together: `measure_joint` gives a `JointRisk`."""

from empriv.measuring.joint.joint_risk import JointRisk, measure_joint

__all__ = ["JointRisk", "measure_joint"]
