# machine: two
# truth: rule=area_too_large
# An area larger than the machine is refused before any page is asked for.
fault "vmalloc 8000000 KERNEL"
