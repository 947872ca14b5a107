"""Pictures in, motion out: two arrays on one grid, or two images in the world."""
