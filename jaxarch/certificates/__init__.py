"""What theorems say of a network that was found: how good its mask is, how often it errs."""

from jaxarch.certificates.certificate import Certificate as Certificate
from jaxarch.certificates.certificate import Errors as Errors
from jaxarch.certificates.certificate import Flips as Flips
from jaxarch.certificates.certify import certify as certify
