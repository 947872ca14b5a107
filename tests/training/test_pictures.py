import torch
from vrnet.training.pictures import GAP, TILES, lines, strip

from vrnet.fields import warp, zeros


def tiles(picture, width):
    return picture.split(width + GAP, dim=2)


def test_the_tiles_are_the_images_the_first_axis_to_the_right(d, smooth_image):
    shape = (20, 12, 6)[:d]
    I0, I1 = (smooth_image(shape, 2, seed, torch.float32) for seed in (0, 1))
    u = zeros(I0)
    u[:, 0] = 2.0  # along the first axis
    picture = strip(I0, I1, u)
    assert picture.shape == (1, 12, 7 * 20 + 6 * GAP)
    found = [tile[0, :, :20] for tile in tiles(picture, 20)]
    middle = [I[0, 0].T if d == 2 else I[0, 0, :, :, 3].T for I in (I0, I1, warp(I1, u))]
    assert len(found) == len(TILES.split(", "))
    for tile, image in zip(found[:3], middle, strict=True):
        assert torch.equal(tile, image)
    assert torch.equal(found[2][:, :-2], middle[1][:, 2:])  # brought two voxels to the left
    assert torch.equal(found[3], (middle[1] - middle[0]).abs())
    assert torch.equal(found[4], (middle[2] - middle[0]).abs())
    assert torch.equal(found[6][1:-1, 1:-1], torch.full((10, 18), 0.5))  # det = 1, from 0 to 2


def test_a_fold_is_black_and_growth_is_bright(smooth_image):
    I = smooth_image((16, 16), 2, 0, torch.float32)
    x = torch.arange(16.0).view(1, 1, 16, 1).expand(1, 1, 16, 16)
    for slope, shade in ((-1.5, 0.0), (0.5, 0.75), (3.0, 1.0)):
        u = torch.cat([slope * x, 0 * x], dim=1)
        det = tiles(strip(I, I, u), 16)[6][0]
        assert torch.allclose(det[2:-2, 2:-2], torch.tensor(shade))


def test_the_grid_has_a_line_every_eight_voxels(d):
    grid = lines(torch.zeros(1, 1, *(20, 18, 5)[:d]))
    assert grid.shape == (1, 1, *(20, 18, 5)[:d])
    plane = grid[0, 0] if d == 2 else grid[0, 0, :, :, 2]
    bright = plane > 0.99
    assert bright.any(1).all()
    assert bright.all(1).nonzero()[:, 0].tolist() == bright.all(0).nonzero()[:, 0].tolist() == [0, 8, 16]
    assert plane[4, 4] == 0
