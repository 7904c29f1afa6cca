. "$(dirname "$0")/source.sh"
host=${URL#http://}
s3() { s3cmd --no-ssl --host="$host" --host-bucket="$host" --access_key="$KEY" --secret_key="$SECRET" --region=us-east-1 --quiet "$@"; }
at=s3://$BUCKET/s3cmd here=$ROOT/s3cmd

s3 put "$work/big" "$at/big"
cmp "$work/big" "$here/big"
s3 sync "$work/tree/" "$at/tree/"
diff -r "$work/tree" "$here/tree"
echo more >> "$here/tree/a/b/two"
s3 get --force "$at/tree/a/b/two" "$work/two"
cmp "$work/two" "$here/tree/a/b/two"
s3 cp "$at/tree/a/b/two" "$at/copy"
cmp "$work/two" "$here/copy"
s3 mv "$at/copy" "$at/moved"
[ -e "$here/moved" ] && [ ! -e "$here/copy" ]
s3 info "$at/moved" > /dev/null
s3 del --recursive --force "$at/"
no_files "$here"
