"""What may speak against a broken line: further hinges, neighbours that go together, other shapes."""
