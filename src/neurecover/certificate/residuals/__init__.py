"""What a residual that is no noise looks like, and what it hides."""
