"""Putting the page on a Space: what belongs there, the rules it must keep, the upload."""
