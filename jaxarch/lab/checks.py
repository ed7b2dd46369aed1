"""Checks of settings and arguments, for studies and claims; an error is one line that names the argument.

The library keeps these checks private. The lab, and authors of studies, import them from here.
"""

from jaxarch._internal.errors import as_array as as_array
from jaxarch._internal.errors import check_array as check_array
from jaxarch._internal.errors import check_arrays as check_arrays
from jaxarch._internal.errors import check_broadcast as check_broadcast
from jaxarch._internal.errors import check_callable as check_callable
from jaxarch._internal.errors import check_concrete as check_concrete
from jaxarch._internal.errors import check_count as check_count
from jaxarch._internal.errors import check_distinct as check_distinct
from jaxarch._internal.errors import check_flag as check_flag
from jaxarch._internal.errors import check_instance as check_instance
from jaxarch._internal.errors import check_key as check_key
from jaxarch._internal.errors import check_known as check_known
from jaxarch._internal.errors import check_list as check_list
from jaxarch._internal.errors import check_mapping as check_mapping
from jaxarch._internal.errors import check_one_key as check_one_key
from jaxarch._internal.errors import check_positive as check_positive
from jaxarch._internal.errors import check_strength as check_strength
from jaxarch._internal.errors import check_widths as check_widths
from jaxarch._internal.errors import did_you_mean as did_you_mean
from jaxarch._internal.errors import first_line as first_line
from jaxarch._internal.errors import from_extra as from_extra
from jaxarch._internal.errors import is_choice as is_choice
from jaxarch._internal.errors import is_traced as is_traced
from jaxarch._internal.errors import items as items
from jaxarch._internal.errors import one_line as one_line
from jaxarch._internal.errors import positive_number as positive_number
from jaxarch._internal.errors import printable as printable
from jaxarch._internal.errors import real_number as real_number
from jaxarch._internal.errors import real_numbers as real_numbers
from jaxarch._internal.errors import shown as shown
from jaxarch._internal.memory import check_memory as check_memory
from jaxarch._internal.memory import in_bytes as in_bytes
from jaxarch._internal.trees import check_floating as check_floating
from jaxarch.io._files import as_folder as as_folder
from jaxarch.io._files import as_path as as_path
