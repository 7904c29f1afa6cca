. "$(dirname "$0")/source.sh"
s3() { aws --endpoint-url "$URL" s3 "$@" > "$work/output"; }
at=s3://$BUCKET/aws here=$ROOT/aws

s3 cp "$work/big" "$at/big"
cmp "$work/big" "$here/big"
s3 sync "$work/tree" "$at/tree"
diff -r "$work/tree" "$here/tree"
# After a change of the file, its old checksum must not be served with the new bytes.
echo more >> "$here/tree/a/one"
s3 cp "$at/tree/a/one" "$work/one"
cmp "$work/one" "$here/tree/a/one"
s3 mv "$at/tree/a/one" "$at/tree/moved"
[ ! -e "$here/tree/a/one" ]
mv "$here/tree/moved" "$here/tree/again"
aws --endpoint-url "$URL" s3api head-object --bucket "$BUCKET" --key aws/tree/again > /dev/null
s3 sync "$at/tree" "$work/back"
diff -r "$here/tree" "$work/back"
url=$(aws --endpoint-url "$URL" s3 presign "$at/big")
python3 -c 'import sys, urllib.request; sys.stdout.buffer.write(urllib.request.urlopen(sys.argv[1]).read())' "$url" | cmp "$work/big" -
s3 rm --recursive "$at/"
no_files "$here"
