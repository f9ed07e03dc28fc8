"""Offline routing quality: data in, scores and curves out. Imports the router's core, never the reverse."""
