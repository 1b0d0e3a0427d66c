"""The advisor: which DFlash settings, why, how sure. Pure: no torch, no gradio, no network."""
