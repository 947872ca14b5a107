"""Convolutional networks, and the adaptors that make them initialisers and denoisers."""
