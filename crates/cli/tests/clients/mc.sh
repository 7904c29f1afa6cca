. "$(dirname "$0")/source.sh"
export MC_CONFIG_DIR=$work/config
at=t/$BUCKET/mc here=$ROOT/mc
s3() { mc --quiet "$@" > "$work/output"; }

s3 alias set t "$URL" "$KEY" "$SECRET" --api S3v4
s3 cp "$work/big" "$at/big"
cmp "$work/big" "$here/big"
s3 mirror "$work/tree" "$at/tree"
diff -r "$work/tree" "$here/tree"
echo more >> "$here/tree/a/one"
s3 cp "$at/tree/a/one" "$work/one"
cmp "$work/one" "$here/tree/a/one"
s3 mv "$at/tree/a/one" "$at/tree/a/uno"
[ -e "$here/tree/a/uno" ] && [ ! -e "$here/tree/a/one" ]
s3 stat "$at/big"
s3 tag set "$at/big" colour=red
s3 tag list "$at/big"
grep -q red "$work/output"
s3 rm --recursive --force "$at"
no_files "$here"
