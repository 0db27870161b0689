"""Selection: which elite becomes a parent. A *selector* draws one occupant of a grid; policies are one file each."""

from islands.selection.base import Selector
from islands.selection.curiosity import CuriositySelector
from islands.selection.elite_uniform import EliteUniformSelector
from islands.selection.speed_weighted import SpeedWeightedSelector

__all__ = ["CuriositySelector", "EliteUniformSelector", "Selector", "SpeedWeightedSelector"]
