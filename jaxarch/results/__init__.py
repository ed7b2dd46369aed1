"""Result folders: complete or not there, with a manifest that says how to make them again."""

from jaxarch.results.folders import ResultFolder as ResultFolder
from jaxarch.results.folders import check_place as check_place
from jaxarch.results.folders import new_folder as new_folder
from jaxarch.results.manifest import MANIFEST as MANIFEST
from jaxarch.results.manifest import command_line as command_line
from jaxarch.results.manifest import devices_here as devices_here
from jaxarch.results.manifest import devices_in_words as devices_in_words
from jaxarch.results.manifest import key_description as key_description
from jaxarch.results.manifest import manifest as manifest
from jaxarch.results.manifest import read_manifest as read_manifest
from jaxarch.results.manifest import write_manifest as write_manifest
from jaxarch.results.tables import COLUMNS as COLUMNS
from jaxarch.results.tables import FINDINGS as FINDINGS
from jaxarch.results.tables import RESULTS as RESULTS
from jaxarch.results.tables import finding as finding
from jaxarch.results.tables import read_table as read_table
from jaxarch.results.tables import write_findings as write_findings
from jaxarch.storage import digest as digest
