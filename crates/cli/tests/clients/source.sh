# Common beginning of all clients' scripts. URL, BUCKET, KEY, SECRET: the endpoint; ROOT: the bucket's directory in
# the mount.
set -euo pipefail
export AWS_ACCESS_KEY_ID=$KEY AWS_SECRET_ACCESS_KEY=$SECRET AWS_REGION=us-east-1 AWS_DEFAULT_REGION=us-east-1
trap 'echo "line $LINENO: $BASH_COMMAND" >&2' ERR
work=$(mktemp -d)
head -c 20000000 /dev/urandom > "$work/big"
mkdir -p "$work/tree/a/b" "$work/tree/odd names é"
echo one > "$work/tree/a/one"
echo two > "$work/tree/a/b/two"
echo three > "$work/tree/odd names é/three +x"
no_files() { [ -z "$(find "$1" -type f 2>/dev/null)" ]; }
