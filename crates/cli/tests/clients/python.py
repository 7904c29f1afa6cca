"""boto3 with features that the command-line clients do not use: conditions, ranges, pages, parts copied from objects."""

import os

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

bucket, root = os.environ["BUCKET"], os.environ["ROOT"] + "/boto3"
s3 = boto3.client(
    "s3",
    endpoint_url=os.environ["URL"],
    aws_access_key_id=os.environ["KEY"],
    aws_secret_access_key=os.environ["SECRET"],
    region_name="us-east-1",
    config=Config(retries={"max_attempts": 1}),
)


def refused(code, call, **arguments):
    try:
        call(Bucket=bucket, **arguments)
    except ClientError as error:
        assert error.response["Error"]["Code"] == code, error
    else:
        raise AssertionError(f"{code} was expected")


def keys(prefix, size):
    pages = s3.get_paginator("list_objects_v2").paginate(
        Bucket=bucket, Prefix=prefix, PaginationConfig={"PageSize": size}
    )
    return [entry["Key"] for page in pages for entry in page.get("Contents", [])]


def text(name):
    with open(f"{root}/{name}") as file:
        return file.read()


# Headers and tags are returned as they were stored.
s3.put_object(
    Bucket=bucket,
    Key="boto3/x",
    Body=b"1234567890",
    ContentType="text/x",
    CacheControl="no-cache",
    Metadata={"k": "v"},
    Tagging="t=1",
)
assert text("x") == "1234567890"
head = s3.head_object(Bucket=bucket, Key="boto3/x")
assert (head["ContentType"], head["CacheControl"], head["Metadata"]["k"]) == ("text/x", "no-cache", "v"), head
assert s3.get_object_tagging(Bucket=bucket, Key="boto3/x")["TagSet"] == [{"Key": "t", "Value": "1"}]
assert s3.get_object(Bucket=bucket, Key="boto3/x", Range="bytes=2-4")["Body"].read() == b"345"

# Conditional PUTs. Debian's boto3 is too old to have parameters for them, so their headers are added by hand.
condition = {}
s3.meta.events.register("before-call.s3.PutObject", lambda params, **_: params["headers"].update(condition))
condition.update({"If-None-Match": "*"})
refused("PreconditionFailed", s3.put_object, Key="boto3/x", Body=b"z")
condition.clear()
condition.update({"If-Match": head["ETag"]})
s3.put_object(Bucket=bucket, Key="boto3/x", Body=b"abc")
refused("PreconditionFailed", s3.put_object, Key="boto3/x", Body=b"z")
condition.clear()
assert text("x") == "abc"

# An upload becomes visible when it is completed. Completing it again is not an error.
part = os.urandom(6 << 20)
upload = {"Bucket": bucket, "Key": "boto3/m"}
upload["UploadId"] = s3.create_multipart_upload(**upload)["UploadId"]
first = s3.upload_part(**upload, PartNumber=1, Body=part)["ETag"]
second = s3.upload_part_copy(**upload, PartNumber=2, CopySource=f"{bucket}/boto3/x")["CopyPartResult"]["ETag"]
assert not os.path.exists(f"{root}/m")
parts = {"Parts": [{"PartNumber": 1, "ETag": first}, {"PartNumber": 2, "ETag": second}]}
made = s3.complete_multipart_upload(**upload, MultipartUpload=parts)
assert s3.complete_multipart_upload(**upload, MultipartUpload=parts)["ETag"] == made["ETag"]
with open(f"{root}/m", "rb") as file:
    assert file.read() == part + b"abc"

# Changes of files by programs are visible in listings at once.
os.makedirs(f"{root}/d/e")
with open(f"{root}/d/e/f", "w") as file:
    file.write("x")
assert {"boto3/x", "boto3/m", "boto3/d/e/f"} <= set(keys("boto3/", 2))
os.rename(f"{root}/d", f"{root}/D")
assert s3.get_object(Bucket=bucket, Key="boto3/D/e/f")["Body"].read() == b"x"
os.remove(f"{root}/x")
refused("404", s3.head_object, Key="boto3/x")

# A directory that exists only as part of keys disappears with its last object.
names = [{"Key": f"boto3/n/{at:05}"} for at in range(30)]
for name in names:
    s3.put_object(Bucket=bucket, Key=name["Key"], Body=b"")
assert len(s3.delete_objects(Bucket=bucket, Delete={"Objects": names})["Deleted"]) == 30
assert not os.path.exists(f"{root}/n")
for key in keys("boto3/", 1000):
    s3.delete_object(Bucket=bucket, Key=key)
assert not [name for _, _, names in os.walk(root) for name in names]
