"""What an instance declares: a pure package. `spec.parse.parse` is the way in; README.md is the map."""
