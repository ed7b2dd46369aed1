"""Result folders: complete or absent, with a manifest that says how to reproduce them."""

from jaxarch.lab.results.folders import ResultFolder as ResultFolder
from jaxarch.lab.results.folders import check_place as check_place
from jaxarch.lab.results.folders import new_folder as new_folder
from jaxarch.lab.results.manifest import MANIFEST as MANIFEST
from jaxarch.lab.results.manifest import command_line as command_line
from jaxarch.lab.results.manifest import devices_here as devices_here
from jaxarch.lab.results.manifest import devices_in_words as devices_in_words
from jaxarch.lab.results.manifest import key_description as key_description
from jaxarch.lab.results.manifest import manifest as manifest
from jaxarch.lab.results.manifest import read_manifest as read_manifest
from jaxarch.lab.results.manifest import write_manifest as write_manifest
from jaxarch.lab.results.tables import COLUMNS as COLUMNS
from jaxarch.lab.results.tables import FINDINGS as FINDINGS
from jaxarch.lab.results.tables import RESULTS as RESULTS
from jaxarch.lab.results.tables import finding as finding
from jaxarch.lab.results.tables import read_table as read_table
from jaxarch.lab.results.tables import write_findings as write_findings
