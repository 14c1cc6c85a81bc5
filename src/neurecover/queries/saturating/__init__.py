"""One hidden layer of units that saturate, such as tanh and sigmoid."""
