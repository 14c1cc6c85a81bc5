"""Other networks with the same function: signs of units, units on one plane, units that exchange weights."""
