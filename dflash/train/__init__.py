"""Training: the demo corpus and target, and drafts for any target."""
