from . import fields as fields
from . import phantom as phantom
from .cardiac.cine import CineResult as CineResult
from .cardiac.cine import Tracking as Tracking
from .cardiac.cine import track as track
from .errors import BadInput as BadInput
from .errors import InputWarning as InputWarning
from .images.grid import Affine as Affine
from .images.grid import Grid as Grid
from .images.image import Cine as Cine
from .images.image import Image as Image
from .images.io import read_cine as read_cine
from .images.io import read_image as read_image
from .images.io import write_image as write_image
from .images.transforms import Transform as Transform
from .images.transforms import compose as compose
from .methods.method import Method as Method
from .methods.names import (
    names as names,
)
from .methods.names import (
    network as network,
)
from .methods.names import (
    parameters as parameters,
)
from .methods.names import (
    parse as parse,
)
from .methods.names import (
    save_network as save_network,
)
from .methods.names import (
    with_parameters as with_parameters,
)
from .methods.solvers import Variational as Variational
from .methods.weights import Trained as Trained
from .methods.weights import load_method as load_method
from .provenance import __version__ as __version__
from .registration.arrays import Registration as Registration
from .registration.arrays import register as register
from .registration.images import register_images as register_images
from .registration.pair import ImageRegistration as ImageRegistration
from .registration.pair import PairResult as PairResult
from .verdict.rules import Verdict as Verdict
from .verdict.rules import judge as judge
from .verdict.rules import judge_images as judge_images
