//! Certificates for a test: an authority of its own, a server it vouches for as `localhost` and
//! `127.0.0.1`, and a client. Valid for nothing and nobody else.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use tempfile::TempDir;

/// PEM files in a folder that is removed when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    dir: Arc<TempDir>,
}

impl TlsFiles {
    /// Makes a new authority and what it signs. Two calls trust nothing of each other's.
    pub fn generate() -> TlsFiles {
        try_generate().expect("certificates can be made")
    }

    /// The authority's certificate, which a client trusts.
    pub fn ca(&self) -> PathBuf {
        self.path().join("ca.crt")
    }

    /// The server's certificate.
    pub fn server_cert(&self) -> PathBuf {
        self.path().join("server.crt")
    }

    /// The server's private key.
    pub fn server_key(&self) -> PathBuf {
        self.path().join("server.key")
    }

    /// The client's certificate.
    pub fn client_cert(&self) -> PathBuf {
        self.path().join("client.crt")
    }

    /// The client's private key.
    pub fn client_key(&self) -> PathBuf {
        self.path().join("client.key")
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }
}

fn try_generate() -> Result<TlsFiles, Box<dyn std::error::Error>> {
    let files = TlsFiles { dir: Arc::new(TempDir::new()?) };

    let mut ca = named("Leasehold test authority", &[])?;
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let ca_key = KeyPair::generate()?;
    fs::write(files.ca(), ca.self_signed(&ca_key)?.pem())?;
    let authority = Issuer::new(ca, ca_key);

    let mut server = named("localhost", &["localhost", "127.0.0.1"])?;
    server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let server_key = KeyPair::generate()?;
    fs::write(files.server_cert(), server.signed_by(&server_key, &authority)?.pem())?;
    fs::write(files.server_key(), server_key.serialize_pem())?;

    let mut client = named("leasehold-test-client", &["client.test"])?;
    client.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let client_key = KeyPair::generate()?;
    fs::write(files.client_cert(), client.signed_by(&client_key, &authority)?.pem())?;
    fs::write(files.client_key(), client_key.serialize_pem())?;

    Ok(files)
}

fn named(common_name: &str, hosts: &[&str]) -> Result<CertificateParams, rcgen::Error> {
    let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
    let mut params = CertificateParams::new(hosts)?;
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    Ok(params)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Need, RedisServer, skip};
    use std::process::Command;

    /// What redis-cli, which comes with redis-server, says to a PING over TLS.
    fn ping(server: &RedisServer, host: &str, files: &TlsFiles, with_client_cert: bool) -> String {
        let beside = Need::Redis.path().with_file_name("redis-cli");
        let mut cli = Command::new(if beside.exists() { beside } else { "redis-cli".into() });
        cli.args(["--tls", "-h", host, "-p", &server.port().to_string(), "--cacert"])
            .arg(files.ca());
        if with_client_cert {
            cli.arg("--cert").arg(files.client_cert()).arg("--key").arg(files.client_key());
        }
        let output = cli.arg("PING").output().expect("redis-cli runs");
        let said = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&said).trim().to_owned()
    }

    #[test]
    fn a_client_that_trusts_the_authority_is_served() {
        if skip(Need::Redis) {
            return;
        }
        let files = TlsFiles::generate();
        let server = RedisServer::redis().tls(&files).start();
        assert_eq!(ping(&server, "localhost", &files, false), "PONG");
        assert_eq!(ping(&server, "127.0.0.1", &files, true), "PONG");
        assert_eq!(server.url(), format!("rediss://localhost:{}", server.port()));
        server.command(&["SET", "key", "value"]).unwrap();
        assert_eq!(server.get("key").as_deref(), Some("value"));
    }

    /// What Python's ssl, which checks the name, makes of a server that is addressed as `name`.
    fn ping_by_name(server: &RedisServer, name: &str, files: &TlsFiles) -> String {
        const CLIENT: &str = "
import socket, ssl, sys
port, name, ca = sys.argv[1:]
plain = socket.create_connection(('127.0.0.1', int(port)))
tls = ssl.create_default_context(cafile=ca).wrap_socket(plain, server_hostname=name)
tls.sendall(b'PING\\r\\n')
print(tls.recv(64).decode())
";
        let output = Command::new(Need::PythonPeers.path())
            .args(["-c", CLIENT, &server.port().to_string(), name])
            .arg(files.ca())
            .output()
            .expect("python runs");
        let said = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&said).trim().to_owned()
    }

    #[test]
    fn the_certificate_is_for_localhost_and_127_0_0_1_only() {
        if skip(Need::Redis) || skip(Need::PythonPeers) {
            return;
        }
        let files = TlsFiles::generate();
        let server = RedisServer::redis().tls(&files).start();
        assert_eq!(ping_by_name(&server, "localhost", &files), "+PONG");
        assert_eq!(ping_by_name(&server, "127.0.0.1", &files), "+PONG");
        let elsewhere = ping_by_name(&server, "elsewhere.test", &files);
        assert!(elsewhere.contains("Hostname mismatch"), "{elsewhere}");
    }

    #[test]
    fn a_client_that_trusts_another_authority_refuses() {
        if skip(Need::Redis) {
            return;
        }
        let server = RedisServer::redis().tls(&TlsFiles::generate()).start();
        let answer = ping(&server, "localhost", &TlsFiles::generate(), false);
        assert!(answer.contains("certificate verify failed"), "{answer}");
    }

    #[test]
    fn a_server_can_insist_on_a_client_certificate() {
        if skip(Need::Redis) {
            return;
        }
        let files = TlsFiles::generate();
        let server = RedisServer::redis().tls(&files).config("tls-auth-clients", "yes").start();
        assert_eq!(ping(&server, "localhost", &files, true), "PONG");
        assert_ne!(ping(&server, "localhost", &files, false), "PONG");
    }

    #[test]
    fn a_client_does_not_get_through_without_tls() {
        if skip(Need::Redis) {
            return;
        }
        let server = RedisServer::redis().tls(&TlsFiles::generate()).start();
        let plain = crate::Connection::to(&server.addr()).unwrap().call(&["PING"]);
        assert!(plain.is_err(), "{plain:?}");
    }
}
