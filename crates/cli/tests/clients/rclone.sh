. "$(dirname "$0")/source.sh"
export RCLONE_CONFIG_T_TYPE=s3 RCLONE_CONFIG_T_PROVIDER=Other RCLONE_CONFIG_T_ENDPOINT=$URL RCLONE_CONFIG_T_REGION=us-east-1
export RCLONE_CONFIG_T_ACCESS_KEY_ID=$KEY RCLONE_CONFIG_T_SECRET_ACCESS_KEY=$SECRET RCLONE_S3_NO_CHECK_BUCKET=true
at=t:$BUCKET/rclone here=$ROOT/rclone

rclone copy "$work/tree" "$at/tree"
diff -r "$work/tree" "$here/tree"
rclone copyto "$work/big" "$at/big" --s3-upload-cutoff 5M --s3-chunk-size 5M
cmp "$work/big" "$here/big"
rclone check "$work/tree" "$at/tree"
echo new > "$here/tree/a/new"
rclone copy "$at/tree" "$work/back"
diff -r "$here/tree" "$work/back"
rclone moveto "$at/tree/a/new" "$at/tree/a/newer"
[ -e "$here/tree/a/newer" ] && [ ! -e "$here/tree/a/new" ]
rclone purge "$at"
no_files "$here"
