"""Images to register: data sets on disk, and phantoms made on the spot."""
