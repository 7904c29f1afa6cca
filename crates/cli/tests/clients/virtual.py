"""boto3 in virtual-hosted style: the host names the bucket, at a domain that only this program resolves."""

import os
import socket
from urllib.parse import urlsplit

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

bucket = os.environ["BUCKET"]
port = urlsplit(os.environ["URL"]).port
resolve = socket.getaddrinfo
socket.getaddrinfo = lambda host, *more, **named: resolve(
    "127.0.0.1" if str(host).endswith("s3.test") else host, *more, **named
)
s3 = boto3.client(
    "s3",
    endpoint_url=f"http://s3.test:{port}",
    aws_access_key_id=os.environ["KEY"],
    aws_secret_access_key=os.environ["SECRET"],
    region_name="us-east-1",
    config=Config(retries={"max_attempts": 1}, s3={"addressing_style": "virtual"}, signature_version="s3v4"),
)
hosts = set()
s3.meta.events.register("before-send.s3", lambda request, **_: hosts.add(urlsplit(request.url).hostname))


def keys():
    pages = s3.get_paginator("list_objects_v2").paginate(
        Bucket=bucket, Prefix="virtual/", PaginationConfig={"PageSize": 2}
    )
    return [entry["Key"] for page in pages for entry in page.get("Contents", [])]


for name in ["a", "b c", "UPPER_case", "d"]:
    s3.put_object(Bucket=bucket, Key=f"virtual/{name}", Body=name.encode())
assert s3.get_object(Bucket=bucket, Key="virtual/b c")["Body"].read() == b"b c"
s3.copy_object(Bucket=bucket, Key="virtual/copy", CopySource={"Bucket": bucket, "Key": "virtual/b c"})
part = b"x" * (5 << 20)
upload = s3.create_multipart_upload(Bucket=bucket, Key="virtual/parts")["UploadId"]
parts = []
for number, body in [(1, part), (2, b"end")]:
    named = {"Bucket": bucket, "Key": "virtual/parts", "UploadId": upload, "PartNumber": number}
    # A part that is sent again has the same etag; the upload can be completed with the first answer.
    first = s3.upload_part(Body=body, **named)["ETag"]
    assert s3.upload_part(Body=body, **named)["ETag"] == first
    parts.append({"PartNumber": number, "ETag": first})
done = s3.complete_multipart_upload(
    Bucket=bucket, Key="virtual/parts", UploadId=upload, MultipartUpload={"Parts": parts}
)
assert done["Location"] == f"http://{bucket}.s3.test:{port}/virtual/parts", done["Location"]
assert s3.head_object(Bucket=bucket, Key="virtual/parts")["ContentLength"] == len(part) + 3
attributes = ["ETag", "Checksum", "ObjectParts", "StorageClass", "ObjectSize"]
found = s3.get_object_attributes(Bucket=bucket, Key="virtual/parts", ObjectAttributes=attributes)
assert found["ObjectSize"] == len(part) + 3, found
assert keys() == sorted(f"virtual/{name}" for name in ["a", "b c", "UPPER_case", "copy", "d", "parts"]), keys()
deleted = s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": key} for key in keys()]})
assert len(deleted["Deleted"]) == 6 and "Errors" not in deleted, deleted
assert keys() == []
try:
    s3.get_object(Bucket=bucket, Key="virtual/a")
except ClientError as error:
    assert error.response["Error"]["Code"] == "NoSuchKey", error
else:
    raise AssertionError("a deleted object was read")
assert hosts == {f"{bucket}.s3.test"}, hosts
