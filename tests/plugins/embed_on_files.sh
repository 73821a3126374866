# Runs the embedding sample on 100 noise images with labels 0 to 9, as IDX files.
set -eu
{ printf '\000\000\010\003\000\000\000\144\000\000\000\034\000\000\000\034'; head -c 78400 /dev/urandom; } > images.idx
{
  printf '\000\000\010\001\000\000\000\144'
  yes 0123456789 | tr -d '\n' | tr '0-9' '\000-\011' | head -c 100
} > labels.idx
"$1" "$2" images.idx labels.idx 1
"$1" "$2" labels.idx images.idx 1 && exit 1 # swapped: refused
exit 0
