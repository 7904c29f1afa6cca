//! The fuzz targets: all code that reads bytes from outside the process.

use meta::codec;

/// Code under test that reads bytes.
#[derive(Debug)]
pub struct Target {
    /// The name in the command and of the corpus file.
    pub name: &'static str,
    /// Panics if an assertion about the input fails.
    pub run: fn(&[u8]),
    /// The dictionary: byte sequences with a meaning to the target.
    pub dictionary: &'static [&'static str],
}

/// All fuzz targets.
pub const TARGETS: &[Target] = &[
    Target { name: "request", run: s3::fuzz::request, dictionary: REQUEST },
    Target { name: "operations", run: s3::fuzz::operations, dictionary: REQUEST },
    Target { name: "form", run: s3::fuzz::form, dictionary: FORM },
    Target { name: "authorization", run: s3::fuzz::authorization, dictionary: REQUEST },
    Target { name: "policy", run: s3::fuzz::policy, dictionary: POLICY },
    Target { name: "texts", run: s3::fuzz::texts, dictionary: TEXTS },
    Target { name: "answers", run: store_s3::fuzz::answers, dictionary: ANSWERS },
    Target { name: "headers", run: store_s3::fuzz::headers, dictionary: HEADERS },
    Target { name: "credentials", run: store_s3::fuzz::credentials, dictionary: CREDENTIALS },
    Target { name: "names", run: store::fuzz::names, dictionary: NAMES },
    Target { name: "messages", run: events::fuzz::messages, dictionary: MESSAGES },
    Target { name: "jobs", run: sources::fuzz::jobs, dictionary: JOBS },
    Target { name: "log", run: staging::writeback::fuzz::write_back_log, dictionary: &[] },
    Target { name: "moves", run: staging::mover::fuzz::mover_journal, dictionary: &[] },
    Target { name: "file", run: store_dir::fuzz::file_record, dictionary: &[] },
    Target { name: "tables", run: tables, dictionary: &[] },
    Target { name: "sst", run: sst::fuzz::table, dictionary: &[] },
    Target { name: "sst-entries", run: sst::fuzz::entries, dictionary: &[] },
    Target { name: "drive-superblock", run: drive::fuzz::superblock, dictionary: &[] },
    Target { name: "drive-manifest", run: drive::fuzz::manifest, dictionary: &[] },
    Target { name: "drive-frame", run: drive::fuzz::frame, dictionary: &[] },
    Target { name: "drive-record", run: drive::fuzz::record, dictionary: &[] },
    Target { name: "drive-key", run: drive::fuzz::key, dictionary: &[] },
    Target { name: "drive-label", run: drive::fuzz::label, dictionary: &[] },
    Target { name: "drive-pool", run: drive::fuzz::pool, dictionary: &[] },
    Target { name: "rulesets", run: views::fuzz::rulesets, dictionary: RULESETS },
    Target { name: "view-state", run: views::fuzz::handler_state, dictionary: &["tnviews1"] },
    Target { name: "view-moves", run: views::fuzz::directory_moves, dictionary: VIEW_MOVES },
    Target { name: "view-messages", run: views::fuzz::remote_messages, dictionary: VIEW_MESSAGES },
];

const REQUEST: &[&str] = &[
    "GET /open",
    "PUT /open/key",
    "POST /open",
    "DELETE /open/key",
    "HEAD /open/key",
    "OPTIONS /open",
    "/open/key",
    "?list-type=2",
    "&max-keys=1",
    "&prefix=a",
    "&delimiter=/",
    "&continuation-token=",
    "&start-after=",
    "&encoding-type=url",
    "?versions",
    "?uploads",
    "?uploadId=1",
    "&partNumber=1",
    "?delete",
    "?tagging",
    "?acl",
    "?policy",
    "?cors",
    "?versioning",
    "?lifecycle",
    "?object-lock",
    "?retention",
    "?legal-hold",
    "?location",
    "?website",
    "?attributes",
    "?restore",
    "?append&position=0",
    "?renameObject",
    "?ownershipControls",
    "?notification",
    "&key-marker=",
    "&version-id-marker=",
    "?versionId=null",
    "\nHost: x",
    "\nRange: bytes=0-1",
    "\nContent-MD5: ",
    "\nx-amz-content-sha256: STREAMING-UNSIGNED-PAYLOAD-TRAILER",
    "\nx-amz-decoded-content-length: 3",
    "\nx-amz-trailer: x-amz-checksum-crc32",
    "\nContent-Encoding: aws-chunked",
    "\nx-amz-copy-source: open/key",
    "\nx-amz-copy-source-range: bytes=0-1",
    "\nx-amz-checksum-crc32: AAAAAA==",
    "\nx-amz-meta-a: b",
    "\nx-amz-tagging: a=b",
    "\nx-amz-acl: public-read",
    "\nx-amz-grant-read: id=\"x\"",
    "\nIf-Match: \"x\"",
    "\nIf-None-Match: *",
    "\nIf-Modified-Since: Wed, 21 Oct 2015 07:28:00 GMT",
    "\nOrigin: http://x",
    "\nAccess-Control-Request-Method: PUT",
    "\nx-amz-object-attributes: ETag,ObjectParts",
    "\nExpires: 0",
    "\nContent-Type: multipart/form-data; boundary=b",
    "--b\r\nContent-Disposition: form-data; name=\"key\"\r\n\r\nk\r\n--b--\r\n",
    "\nContent-Type: application/x-www-form-urlencoded",
    "\n\n",
    "3\r\nabc\r\n0\r\n",
    "x-amz-checksum-crc32:AAAAAA==\r\n\r\n",
    ";chunk-signature=",
    "Action=AssumeRole&RoleArn=a&RoleSessionName=b",
    "\nx-amz-object-lock-mode: GOVERNANCE",
    "\nx-amz-object-lock-retain-until-date: 2030-01-01T00:00:00Z",
    "\nAuthorization: AWS4-HMAC-SHA256 Credential=tests-admin/20261122/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=00",
    "\nx-amz-date: 20261122T000000Z",
    "?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=tests-admin/20261122/us-east-1/s3/aws4_request",
    "&X-Amz-Date=20261122T000000Z&X-Amz-Expires=60&X-Amz-SignedHeaders=host&X-Amz-Signature=0",
    "\nx-amz-security-token: t",
    "%2F",
    "%00",
    "%ff",
    "/../",
    "//",
    "<Delete><Object><Key>a</Key></Object></Delete>",
    "<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet></Tagging>",
    "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>x</ETag></Part></CompleteMultipartUpload>",
    "<CORSConfiguration><CORSRule><AllowedOrigin>*</AllowedOrigin><AllowedMethod>GET</AllowedMethod></CORSRule></CORSConfiguration>",
    "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>",
    "<!DOCTYPE a [<!ENTITY b \"c\">]>",
    "&b;",
    "<![CDATA[",
    "<?xml",
];

const FORM: &[&str] = &[
    "key: k\n",
    "key: a/${filename}\n",
    "bucket: open\n",
    "policy: {\"expiration\":\"2100-01-01T00:00:00Z\",\"conditions\":[]}\n",
    "[\"starts-with\",\"$key\",\"\"]",
    "[\"eq\",\"$x-amz-meta-a\",\"b\"]",
    "{\"bucket\":\"open\"}",
    "[\"content-length-range\",0,10]",
    "tagging: <Tagging><TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet></Tagging>\n",
    "x-amz-tagging: a=b\n",
    "x-amz-meta-a: b\n",
    "acl: private\n",
    "Content-Type: text/plain\n",
    "success_action_status: 201\n",
    "success_action_redirect: http://x/y\n",
    "redirect: http://x\n",
    "x-amz-checksum-crc32: AAAAAA==\n",
    "x-amz-object-lock-mode: GOVERNANCE\n",
    "x-amz-server-side-encryption: AES256\n",
    "x-amz-storage-class: STANDARD\n",
    "x-ignore-a: b\n",
    "AWSAccessKeyId: tests-admin\n",
    "signature: AAAA\n",
    "x-amz-algorithm: AWS4-HMAC-SHA256\n",
    "x-amz-credential: tests-admin/20261122/us-east-1/s3/aws4_request\n",
    "x-amz-date: 20261122T000000Z\n",
    "x-amz-signature: 0\n",
    "file: \n",
    "submit: x\n",
    "\n\n",
    "\u{fc}",
    "$",
    "\\",
    "\"",
];

const POLICY: &[&str] = &[
    "{\"Version\":\"2012-10-17\",",
    "\"Statement\":[",
    "{\"Effect\":\"Allow\",",
    "\"Principal\":\"*\",",
    "\"Principal\":{\"AWS\":[\"*\"]},",
    "\"Action\":\"s3:*\",",
    "\"NotAction\":",
    "\"Resource\":\"arn:aws:s3:::open/*\"",
    "\"Condition\":{\"IpAddress\":{\"aws:SourceIp\":\"10.0.0.0/8\"}}",
    "\"StringLike\":{\"s3:prefix\":[\"a*?\"]}",
    "\"StringNotEqualsIgnoreCase\":",
    "*",
    "?",
    "}",
    "]",
    "::/0",
    "/129",
];

const TEXTS: &[&str] = &[
    "8388608x99,",
    "1x10000,",
    "a=b&",
    "%2B",
    "%",
    "+",
    "bytes=",
    "Action=AssumeRole&",
    "RoleArn=a&",
    "RoleSessionName=b&",
    "DurationSeconds=900&",
    "crc32c:",
    "sha256:",
    "=-1",
];

const ANSWERS: &[&str] = &[
    "<ListBucketResult>",
    "</ListBucketResult>",
    "<Contents>",
    "</Contents>",
    "<Key>",
    "</Key>",
    "<ETag>",
    "</ETag>",
    "<Size>1</Size>",
    "<LastModified>2026-11-21T00:00:01Z</LastModified>",
    "<CommonPrefixes><Prefix>a/</Prefix></CommonPrefixes>",
    "<IsTruncated>true</IsTruncated>",
    "<NextContinuationToken>t</NextContinuationToken>",
    "<EncodingType>url</EncodingType>",
    "<Error><Code>c</Code><Message>m</Message></Error>",
    "<Tagging><TagSet><Tag><Key>k</Key><Value>v</Value></Tag></TagSet></Tagging>",
    "<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>",
    "<CopyObjectResult>",
    "<AssumeRoleResponse><AssumeRoleResult><Credentials>",
    "<AccessKeyId>A</AccessKeyId>",
    "<SecretAccessKey>s</SecretAccessKey>",
    "<Expiration>2026-11-21T00:00:01Z</Expiration>",
    "&lt;",
    "&#x0;",
    "&#1114112;",
    "&a;",
    "<!DOCTYPE a [<!ENTITY b \"c\">]>",
    "<![CDATA[",
    "]]>",
    "<!--",
    "-->",
    "<?xml version=\"1.0\"?>",
    "%2F",
    "+",
    "<a/>",
    " xmlns=\"b\"",
];

const HEADERS: &[&str] = &[
    "etag: \"e\"\n",
    "content-length: 1\n",
    "content-range: bytes 0-1/2\n",
    "last-modified: Wed, 21 Oct 2015 07:28:00 GMT\n",
    "x-amz-meta-a: b\n",
    "x-amz-version-id: v\n",
    "x-amz-storage-class: GLACIER\n",
    "=?UTF-8?B?",
    "=?utf-8?Q?",
    "?=",
    "=C3",
    "_",
    "YQ==",
    "retry-after: 1\n",
];

const CREDENTIALS: &[&str] = &[
    "[default]\n",
    "[profile a]\n",
    "[sso-session s]\n",
    "[services x]\n",
    "aws_access_key_id=A\n",
    "aws_secret_access_key=s\n",
    "role_arn=arn:a\n",
    "source_profile=a\n",
    "source_profile=default\n",
    "credential_source=Environment\n",
    "sso_session=s\n",
    "sso_account_id=1\n",
    "sso_role_name=r\n",
    "sso_region=r\n",
    "credential_process=p\n",
    "mfa_serial=m\n",
    "duration_seconds=1\n",
    " #",
    "\"AccessKeyId\":\"A\"",
    "\"SecretAccessKey\":\"s\"",
    "\"Expiration\":\"2026-11-21T00:00:01Z\"",
    "\"Version\":1",
    "{",
    "}",
    ",",
    "http://",
    "https://[::1]:1/a",
];

const MESSAGES: &[&str] = &[
    "{\"Records\":[",
    "{\"eventSource\":\"minio:s3\",",
    "\"eventSource\":\"ceph:s3\",",
    "\"eventTime\":\"2026-11-21T00:00:01.5Z\",",
    "\"eventName\":\"ObjectCreated:Put\",",
    "\"eventName\":\"ObjectRemoved:Delete\",",
    "\"s3\":{\"bucket\":{\"name\":\"b\"},\"object\":{\"key\":\"k\",",
    "\"size\":1,",
    "\"eTag\":\"e\",",
    "\"versionId\":\"v\",",
    "\"sequencer\":\"18D7\",",
    "\"userMetadata\":{\"X-Amz-Meta-A\":\"b\"},",
    "\"metadata\":[{\"key\":\"x-amz-meta-a\",\"val\":\"b\"}],",
    "\"tags\":{\"a\":\"b\"},",
    "{\"detail-type\":\"Object Created\",",
    "\"detail\":{\"bucket\":{\"name\":\"b\"},\"object\":{\"key\":\"k\"}}",
    "{\"Type\":\"Notification\",\"Message\":\"",
    "{\"message\":{\"attributes\":{\"eventType\":\"OBJECT_FINALIZE\",\"bucketId\":\"b\",\"objectId\":\"k\"},",
    "\"objectGeneration\":\"1\"",
    "\"data\":\"e30=\"",
    "{\"event\":\"storage.content.new\",",
    "\"when\":1790000000123456,",
    "\"url\":{\"user\":\"u\",\"path\":\"p\"},",
    "\"data\":[{\"type\":\"properties\",\"key\":\"a\",\"value\":\"b\"}]",
    "{\"Event\":\"s3:TestEvent\"}",
    "[{\"Event\":[",
    "\\u00fc",
    "\\\"",
    "%2B",
    "+",
    "null",
    "1e3",
    "}]}",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
];

const JOBS: &[&str] =
    &["RESERVED 1 3\r\nabc\r\n", "TIMED_OUT\r\n", "DEADLINE_SOON\r\n", "\r\n", "18446744073709551615"];

const NAMES: &[&str] = &["/", "//", "./", "../", "%", "%=", "%+", "%%", "%2F", "\0", ".tenon/", "..", "."];

const RULESETS: &[&str] = &[
    "all:\n",
    "  container: b\n",
    "  container: [a, 'b-*']\n",
    "  object: '**/*.fasta'\n",
    "  object: /^a.*$/\n",
    "  size: '>= 1 MiB'\n",
    "  size: [1, 2]\n",
    "  mtime: '< 7d'\n",
    "  mtime: 2026-11-21T00:00:01Z\n",
    "  atime: '> 1h'\n",
    "  type: text/*\n",
    "  properties:\n    color: black\n",
    "  properties: {a: ['*', null]}\n",
    "  tags:\n    a: b\n",
    "  directories: true\n",
    "{container: b, object: '*'}",
    "&a ",
    "*a",
    "<<: ",
    "!!str ",
    "|\n",
    ">-\n",
    "---\n",
    "\u{fc}",
    "null",
    "[",
    "]",
    "'",
    "\"",
];

const VIEW_MOVES: &[&str] = &[
    "{\"container\":\"b\",\"key\":\"k\",\"from\":[null],\"to\":\"a\"}\n",
    "{\"container\":\"b\",\"key\":\"k\",\"done\":\"a\"}\n",
    "\"from\":[\"a\",null]",
    "\"to\":null",
    "%25",
    "%0A",
    "\n",
];

const VIEW_MESSAGES: &[&str] = &[
    "{\"cursor\":\"1-2-3\",\"beginning\":true,\"more\":false,\"containers\":[\"b\"],\"shown\":[],\"gone\":[]}",
    "[0,\"k\",1,\"e\",-1,null,{\"a\":\"b\"},null]",
    "[0,\"k%0A\"]",
    "\"unlisted\":[[\"b\",\"why\"]]",
    "{\"kind\":\"denied\",\"says\":\"x\",\"container\":\"b\"}",
    "{\"view\":1}",
    "ffffffffffffffff-",
    "{",
    "}",
    "[",
    "]",
    ",",
];

/// Reads records of the metadata engine: each decoded value must encode to bytes that decode to an equal value.
fn tables(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    match kind % 6 {
        0 => {
            if let Ok(op) = codec::decode_op(bytes) {
                assert_eq!(codec::decode_op(&codec::encode_op(&op)).as_ref(), Ok(&op));
            }
        }
        1 => {
            if let Ok(record) = codec::decode_log_record(bytes) {
                assert_eq!(codec::decode_log_record(&codec::encode_log_record(&record)), Ok(record));
            }
        }
        2 => {
            if let Ok(record) = codec::decode_inode(meta::Ino::ROOT, bytes) {
                drop(codec::encode_inode(&record.inode));
            }
        }
        3 => {
            if let Ok(extent) = codec::decode_extent(0, bytes) {
                assert_eq!(codec::decode_extent(0, &codec::encode_extent(&extent)), Ok(extent));
            }
        }
        4 => {
            if let Ok(quota) = codec::decode_quota(bytes) {
                assert_eq!(codec::decode_quota(&codec::encode_quota(&quota)), Ok(quota));
            }
            if let Some(acl) = meta::acl::Acl::parse(bytes) {
                assert_eq!(meta::acl::Acl::parse(&acl.to_value()), Some(acl));
            }
        }
        _ => {
            if let Ok(dentry) = codec::decode_dentry(bytes) {
                assert_eq!(codec::decode_dentry(&codec::encode_dentry(dentry)), Ok(dentry));
            }
            if let Ok(head) = codec::decode_head(bytes) {
                assert_eq!(codec::decode_head(&codec::encode_head(head)), Ok(head));
            }
        }
    }
}
