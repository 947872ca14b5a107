"""Images to register: data sets on disk, phantoms made on the spot, and how each becomes pairs on one grid."""
