"""What theorems say of a network that was found, how good and how often wrong it is, and set of a search."""

from jaxarch.certificates.certificate import Certificate as Certificate
from jaxarch.certificates.certificate import Errors as Errors
from jaxarch.certificates.certificate import Flips as Flips
from jaxarch.certificates.certify import certify as certify
from jaxarch.certificates.prescribe import prescribe as prescribe
from jaxarch.certificates.prescription import Line as Line
from jaxarch.certificates.prescription import Prescription as Prescription
