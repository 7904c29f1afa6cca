//! Tests of credential providers against local servers and programs that behave like AWS's.

use super::scripted::{Scripted, Seen, Step, answer, error, no_response};
use super::{config, fresh_bucket};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use store::{
    Clock, Entropy, ListRequest, ObjectKey, ObjectStore, Payload, PutOptions, StoreError, SystemClock,
    Timestamp,
};
use store_s3::{CredentialsError, CredentialsSource, Found, S3Buckets, S3Config, Search};
use tokio::time::Instant;

/// A clock that changes only when it is set.
#[derive(Debug)]
struct ManualClock(AtomicI64);

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_secs(self.0.load(Ordering::SeqCst), 0)
    }
}

/// 2026-11-22T00:00:00Z.
const START: i64 = 1_795_305_600;

impl ManualClock {
    fn new() -> Arc<Self> {
        Arc::new(Self(AtomicI64::new(START)))
    }

    fn set(&self, after_start: i64) {
        self.0.store(START + after_start, Ordering::SeqCst);
    }
}

/// A home directory with AWS files, and environment variables.
struct Home {
    dir: tempfile::TempDir,
    vars: Vec<(String, String)>,
}

impl Home {
    fn new(config: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let vars = vec![("HOME".to_owned(), dir.path().to_str().unwrap().to_owned())];
        let home = Self { dir, vars };
        home.write(".aws/config", config);
        home
    }

    fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.vars.push((name.to_owned(), value.into()));
        self
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn search(&self, profile: Option<&str>) -> Result<Found, CredentialsError> {
        let env =
            |name: &str| self.vars.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
        Search { explicit: None, profile: profile.map(str::to_owned), region: None, env: &env }.run()
    }

    fn source(&self, profile: Option<&str>) -> CredentialsSource {
        self.search(profile).unwrap().credentials
    }

    /// Returns the error of getting credentials.
    async fn refused(&self, profile: Option<&str>) -> String {
        let asked = client(S3Config::default(), self.source(profile), ManualClock::new()).sign_in().await;
        let text = asked.unwrap_err().to_string();
        assert!(!text.contains("hush") && text.lines().count() == 1, "{text}");
        text
    }
}

fn client(config: S3Config, credentials: CredentialsSource, clock: Arc<dyn Clock>) -> S3Buckets {
    S3Buckets::new(S3Config { credentials, ..config }, clock, Arc::new(Entropy::new(7))).unwrap()
}

async fn list(buckets: &S3Buckets) -> store::Result<()> {
    buckets.store("bucket").unwrap().list(ListRequest::default()).await.map(drop)
}

fn nothing_listed() -> Step {
    answer("200 OK", &[], "<ListBucketResult></ListBucketResult>")
}

/// Returns the response of an agent, with credentials that expire `ends` seconds after the start.
fn given(access_key: &str, ends: i64) -> Step {
    let ends = moment(START + ends);
    answer(
        "200 OK",
        &[],
        &format!(
            r#"{{"Code":"Success","AccessKeyId":"{access_key}","SecretAccessKey":"hush-{access_key}","Token":"hush-token","Expiration":"{ends}"}}"#
        ),
    )
}

/// Formats a time as ISO 8601; supports only the day of the start.
fn moment(secs: i64) -> String {
    let left = secs - START;
    assert!((0..86_400).contains(&left));
    format!("2026-11-22T{:02}:{:02}:{:02}Z", left / 3600, left / 60 % 60, left % 60)
}

fn sts_answer(action: &str, access_key: &str) -> Step {
    let ends = moment(START + 3600);
    answer(
        "200 OK",
        &[],
        &format!(
            "<{action}Response xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><{action}Result><Credentials><AccessKeyId>{access_key}</AccessKeyId><SecretAccessKey>hush</SecretAccessKey><SessionToken>hush</SessionToken><Expiration>{ends}</Expiration></Credentials></{action}Result></{action}Response>"
        ),
    )
}

/// Returns the access keys of signed requests, in lower case.
fn signers(seen: &[Seen]) -> Vec<String> {
    let key = |seen: &Seen| {
        let credential = seen.head.split_once("credential=").unwrap().1;
        credential.split('/').next().unwrap().to_owned()
    };
    seen.iter().map(key).collect()
}

fn container(agent: &Scripted) -> Home {
    Home::new("").with("AWS_CONTAINER_CREDENTIALS_FULL_URI", format!("{}/creds?id=1", agent.endpoint()))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_of_a_profile_is_assumed_at_a_real_server() {
    let server = servers::shared_minio();
    let keys =
        format!("aws_access_key_id={}\naws_secret_access_key={}\n", server.access_key(), server.secret_key());
    let home = Home::new(&format!(
        "[profile role]\nrole_arn=arn:minio:iam:::role/any\nsource_profile=base\nduration_seconds=900\nregion={}\n[profile base]\n{keys}",
        server.region()
    ))
    .with("AWS_ENDPOINT_URL_STS", server.endpoint());
    // MinIO says that it is ready before it can assume roles.
    let store = loop {
        let buckets = client(config(server), home.source(Some("role")), Arc::new(SystemClock));
        match fresh_bucket(&buckets).await {
            Err(error) if error.to_string().contains("Server not initialized") => {
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
            opened => break opened.unwrap(),
        }
    };
    let key = ObjectKey::new("a").unwrap();
    store.put(&key, Payload::from(bytes::Bytes::from_static(b"x")), PutOptions::default()).await.unwrap();
    assert_eq!(store.head(&key).await.unwrap().size_bytes, 1);
}

#[tokio::test]
async fn chained_roles_are_assumed() {
    let sts = Scripted::start([
        sts_answer("AssumeRole", "INNER"),
        sts_answer("AssumeRole", "OUTER"),
        error("403 Forbidden", "AccessDenied"),
    ])
    .await;
    let config = "[default]\nrole_arn=arn:outer\nrole_session_name=me\nexternal_id=ex/id\nduration_seconds=900\nsource_profile=inner\n[profile inner]\nrole_arn=arn:inner\nsource_profile=base\n[profile base]\naws_access_key_id=BASE\naws_secret_access_key=hush\n";
    let home = Home::new(config).with("AWS_ENDPOINT_URL_STS", sts.endpoint()).with("AWS_REGION", "eu-west-1");
    let s3 = Scripted::start([nothing_listed()]).await;
    list(&client(s3.config(), home.source(None), ManualClock::new())).await.unwrap();
    assert_eq!(
        (signers(&sts.seen()), signers(&s3.seen())),
        (vec!["base".into(), "inner".into()], vec!["outer".into()])
    );
    assert!(sts.seen()[0].head.contains("/eu-west-1/sts/aws4_request"));
    let forms = sts.seen().into_iter().map(|seen| String::from_utf8(seen.body).unwrap()).collect::<Vec<_>>();
    assert_eq!(
        forms,
        [
            "Action=AssumeRole&Version=2011-06-15&RoleArn=arn%3Ainner&RoleSessionName=tenon",
            "Action=AssumeRole&Version=2011-06-15&RoleArn=arn%3Aouter&RoleSessionName=me&ExternalId=ex%2Fid&DurationSeconds=900",
        ]
    );
    let refused = home.refused(None).await;
    assert!(
        refused.contains("role arn:inner of profile 'inner'") && refused.contains("AccessDenied"),
        "{refused}"
    );
}

#[tokio::test]
async fn a_web_identity_is_read_from_its_file_every_time() {
    let sts = Scripted::start([sts_answer("AssumeRoleWithWebIdentity", "WEB")]).await;
    let home = Home::new("");
    let file = home.write("token", "hush-one\n");
    let home = home
        .with("AWS_WEB_IDENTITY_TOKEN_FILE", file)
        .with("AWS_ROLE_ARN", "arn:web")
        .with("AWS_ROLE_SESSION_NAME", "pod")
        .with("AWS_ENDPOINT_URL_STS", sts.endpoint());
    for token in ["hush-one", "hush-two"] {
        home.write("token", token);
        client(S3Config::default(), home.source(None), ManualClock::new()).sign_in().await.unwrap();
        let seen = sts.seen().pop().unwrap();
        assert!(!seen.head.contains("authorization"), "{seen:?}");
        let form = String::from_utf8(seen.body).unwrap();
        assert!(form.contains(&format!("&WebIdentityToken={token}")) && form.contains("=pod&"), "{form}");
    }
    std::fs::remove_file(home.dir.path().join("token")).unwrap();
    assert!(home.refused(None).await.contains("cannot read"));
}

#[tokio::test]
async fn a_containers_agent_is_given_its_token() {
    let agent = Scripted::start([given("BOX", 3600), answer("500 Internal Server Error", &[], "hush")]).await;
    let home = container(&agent);
    let file = home.write("token", "hush-in-file\n");
    let home = home
        .with("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", file)
        .with("AWS_CONTAINER_AUTHORIZATION_TOKEN", "hush-other");
    let s3 = Scripted::start([nothing_listed()]).await;
    list(&client(s3.config(), home.source(None), ManualClock::new())).await.unwrap();
    let seen = &agent.seen()[0].head;
    assert!(
        seen.starts_with("get /creds?id=1 ") && seen.contains("authorization: hush-in-file\r\n"),
        "{seen}"
    );
    let head = &s3.seen()[0].head;
    assert!(head.contains("credential=box/") && head.contains("x-amz-security-token: hush-token"), "{head}");
    let refused = home.refused(None).await;
    assert!(
        refused.contains("the container's agent at http://127.0.0.1:") && refused.contains("500"),
        "{refused}"
    );
}

#[tokio::test]
async fn the_instance_service_is_used_within_a_session() {
    let text = |body: &str| answer("200 OK", &[], body);
    let imds = Scripted::start([text("hush-session"), text("my-role\n"), given("MACHINE", 3600)]).await;
    let home = Home::new("").with("AWS_EC2_METADATA_SERVICE_ENDPOINT", imds.endpoint());
    let s3 = Scripted::start([nothing_listed()]).await;
    list(&client(s3.config(), home.source(None), ManualClock::new())).await.unwrap();
    assert_eq!(signers(&s3.seen()), ["machine"]);
    let role = "/latest/meta-data/iam/security-credentials/";
    assert_eq!(
        imds.lines(),
        ["put /latest/api/token".to_owned(), format!("get {role}"), format!("get {role}my-role")]
    );
    let seen = imds.seen();
    assert!(seen[0].head.contains("x-aws-ec2-metadata-token-ttl-seconds: 60\r\n"), "{seen:?}");
    assert!(seen[1..].iter().all(|seen| seen.head.contains("x-aws-ec2-metadata-token: hush-session\r\n")));
}

/// On a machine that is not an EC2 instance, the search for the metadata service must end soon.
#[tokio::test]
async fn a_missing_instance_service_is_reported_soon_with_the_places_searched() {
    let silent = Scripted::start([no_response().then_stall()]).await;
    let not_found = Scripted::start([answer("404 Not Found", &[], "")]).await;
    let gone = format!("http://{}", servers::free_address());
    for endpoint in [silent.endpoint(), not_found.endpoint(), &gone] {
        let began = Instant::now();
        let home = Home::new("").with("AWS_EC2_METADATA_SERVICE_ENDPOINT", endpoint);
        let refused = home.refused(None).await;
        assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
        for place in ["environment", "profile 'default'", "container", endpoint, "AWS_ACCESS_KEY_ID"] {
            assert!(refused.contains(place), "{refused}");
        }
    }
}

#[tokio::test]
async fn a_login_of_sso_gives_a_roles_credentials() {
    let portal = Scripted::start([
        answer(
            "200 OK",
            &[],
            r#"{"roleCredentials":{"accessKeyId":"SSO","secretAccessKey":"hush","sessionToken":"hush","expiration":1795309200000}}"#,
        ),
        answer("401 Unauthorized", &[], r#"{"message":"Session token not found or invalid"}"#),
    ])
    .await;
    let role = "sso_account_id=123\nsso_role_name=Reader\n";
    let config = format!(
        "[profile new]\nsso_session=corp\n{role}[sso-session corp]\nsso_region=eu-west-1\n[profile old]\nsso_start_url=https://corp.example/start\nsso_region=eu-west-1\n{role}"
    );
    let home = Home::new(&config).with("AWS_ENDPOINT_URL_SSO", portal.endpoint());
    let refused = home.refused(Some("new")).await;
    assert!(refused.contains("no login found: run `aws sso login --profile new`"), "{refused}");
    let login = |ends: &str| format!(r#"{{"accessToken":"hush-login","expiresAt":"{ends}"}}"#);
    for (profile, session) in [("new", "corp"), ("old", "https://corp.example/start")] {
        let name = cache_file(session);
        home.write(&name, &login("2026-11-21T23:59:59Z"));
        let refused = home.refused(Some(profile)).await;
        assert!(refused.contains("the login has expired: run `aws sso login"), "{refused}");
        home.write(&name, &login("2026-11-22T08:00:00Z"));
    }
    let s3 = Scripted::start([nothing_listed()]).await;
    list(&client(s3.config(), home.source(Some("old")), ManualClock::new())).await.unwrap();
    assert_eq!(signers(&s3.seen()), ["sso"]);
    let seen = &portal.seen()[0].head;
    assert!(seen.starts_with("get /federation/credentials?account_id=123&role_name=reader "), "{seen}");
    assert!(seen.contains("x-amz-sso_bearer_token: hush-login\r\n"), "{seen}");
    let refused = home.refused(Some("new")).await;
    assert!(refused.contains("401") && refused.contains("aws sso login --profile new"), "{refused}");
}

/// Returns the name that `aws sso login` gives its cache file: the SHA-1 of the session's name or of the start URL.
fn cache_file(session: &str) -> String {
    let script = "printf %s \"$1\" | sha1sum";
    let sum = std::process::Command::new("sh").args(["-c", script, "sh", session]).output().unwrap();
    let sum = String::from_utf8(sum.stdout).unwrap();
    format!(".aws/sso/cache/{}.json", sum.split_whitespace().next().unwrap())
}

#[tokio::test]
async fn a_program_prints_credentials() {
    let home = Home::new("");
    let program = home.write("print", "#!/bin/sh\necho run >> \"$(dirname \"$0\")/runs\"\necho '{\"Version\":1,\"AccessKeyId\":\"PRINTED\",\"SecretAccessKey\":\"hush\"}'\n");
    home.write(".aws/config", &format!("[default]\ncredential_process = sh \"{program}\" --secret hush\n"));
    let s3 = Scripted::start([nothing_listed()]).await;
    let buckets = client(s3.config(), home.source(None), ManualClock::new());
    for _ in 0..3 {
        list(&buckets).await.unwrap();
    }
    assert_eq!(signers(&s3.seen()), ["printed"; 3]);
    assert_eq!(std::fs::read_to_string(home.dir.path().join("runs")).unwrap(), "run\n");
    for (command, expected) in [
        ("echo hush >&2; exit 3", "exit status: 3"),
        ("no-such-program-hush", "exit status: 127"),
        ("echo hush", "not JSON"),
        ("echo '{\"Version\":2}'", "Version"),
        ("echo '{\"Version\":1,\"AccessKeyId\":\"A\"}'", "without SecretAccessKey"),
        (
            "echo '{\"Version\":1,\"AccessKeyId\":\"A\",\"SecretAccessKey\":\"hush\",\"Expiration\":\"2026-11-21T00:00:00Z\"}'",
            "clock",
        ),
    ] {
        home.write(".aws/config", &format!("[default]\ncredential_process={command}\n"));
        let refused = home.refused(None).await;
        assert!(
            refused.contains("credential_process of profile 'default'") && refused.contains(expected),
            "{refused}"
        );
    }
}

/// Before the expiry, one request begins a renewal and no request waits for it. After the expiry, all requests wait for the
/// same renewal.
#[tokio::test]
async fn credentials_are_renewed_in_time_and_once() {
    let slow = Duration::from_millis(200);
    let agent = Scripted::start([
        given("ONE", 3600),
        given("TWO", 7200).after(slow),
        given("THREE", 10_800).after(slow),
    ])
    .await;
    let s3 = Scripted::start([nothing_listed()]).await;
    let clock = ManualClock::new();
    let buckets = client(s3.config(), container(&agent).source(None), clock.clone());
    let lists = |count| futures_util::future::join_all((0..count).map(|_| list(&buckets)));
    lists(5).await;
    clock.set(3600 - 451);
    lists(2).await;
    assert_eq!((agent.seen().len(), signers(&s3.seen())), (1, vec!["one".to_owned(); 7]));
    clock.set(3600 - 299);
    let began = Instant::now();
    lists(5).await;
    assert!(began.elapsed() < slow, "{:?}", began.elapsed());
    assert_eq!(signers(&s3.seen())[7..], ["one"; 5]);
    tokio::time::sleep(2 * slow).await;
    lists(2).await;
    assert_eq!(
        (agent.seen().len(), &signers(&s3.seen())[12..]),
        (2, ["two".to_owned(), "two".to_owned()].as_slice())
    );
    clock.set(8000);
    lists(5).await;
    assert_eq!((agent.seen().len(), signers(&s3.seen())[14..].to_vec()), (3, vec!["three".to_owned(); 5]));
}

#[tokio::test]
async fn old_credentials_are_used_until_they_expire_while_renewals_fail() {
    let down = answer("503 Service Unavailable", &[], "");
    let agent = Scripted::start([given("ONE", 3600), down]).await;
    let s3 = Scripted::start([nothing_listed()]).await;
    let clock = ManualClock::new();
    let buckets = client(s3.config(), container(&agent).source(None), clock.clone());
    for at in [0, 3400, 3450, 3599] {
        clock.set(at);
        list(&buckets).await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(agent.seen().len() >= 3, "{:?}", agent.lines());
    clock.set(3601);
    let failed = list(&buckets).await.unwrap_err();
    assert!(
        matches!(&failed, StoreError::Unavailable(text) if text.contains("the container's agent")),
        "{failed}"
    );
    assert_eq!(s3.seen().len(), 4);
}

#[tokio::test]
async fn an_expired_session_is_renewed_and_the_request_repeated() {
    let agent = Scripted::start([given("ONE", 3600), given("TWO", 3600)]).await;
    let ended = error("400 Bad Request", "ExpiredToken");
    let s3 = Scripted::start([nothing_listed(), ended.clone(), nothing_listed(), ended]).await;
    let clock = ManualClock::new();
    let buckets = client(s3.config(), container(&agent).source(None), clock.clone());
    list(&buckets).await.unwrap();
    clock.set(10);
    list(&buckets).await.unwrap();
    assert_eq!(signers(&s3.seen()), ["one", "one", "two"]);
    clock.set(20);
    let failed = list(&buckets).await.unwrap_err();
    assert!(matches!(&failed, StoreError::Denied(text) if text.contains("ExpiredToken")), "{failed}");
    assert_eq!((s3.seen().len(), agent.seen().len()), (5, 3));
}

/// A response to HEAD has only the status 403, which usually is about the object, so not every 403 causes a renewal.
#[tokio::test]
async fn refused_heads_rarely_cause_a_renewal() {
    let agent = Scripted::start([given("ONE", 3600)]).await;
    let s3 = Scripted::start([answer("403 Forbidden", &[], "")]).await;
    let clock = ManualClock::new();
    let buckets = client(s3.config(), container(&agent).source(None), clock.clone());
    let key = ObjectKey::new("a").unwrap();
    for at in [0, 10, 61, 62, 70] {
        clock.set(at);
        let refused = buckets.store("bucket").unwrap().head(&key).await.unwrap_err();
        assert!(matches!(refused, StoreError::Denied(_)), "{refused}");
    }
    assert_eq!((agent.seen().len(), s3.seen().len()), (2, 6));
}
