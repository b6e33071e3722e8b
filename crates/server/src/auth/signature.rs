//! Gives the JWT library its signature algorithms, from the crypto library that TLS uses too.

use jsonwebtoken::crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::signature::{self, Signer, Verifier};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind, EncodingKey};
use ring::hmac;
use ring::signature::{RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm};

static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: signer,
    verifier_factory: verifier,
    // For making key sets out of private keys, which the server does not do.
    key_utils: KeyUtils::new_unimplemented(),
};

/// Must be called before a token is signed or verified. Calling it again does nothing.
pub(super) fn install() {
    // An error means that it is installed already.
    let _ = PROVIDER.install_default();
}

struct Hs256(hmac::Key);

impl Hs256 {
    fn new(secret: &[u8]) -> Hs256 {
        Hs256(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }
}

fn signer(algorithm: &Algorithm, key: &EncodingKey) -> Result<Box<dyn JwtSigner>, Error> {
    match algorithm {
        Algorithm::HS256 if key.family() == AlgorithmFamily::Hmac => Ok(Box::new(Hs256::new(key.as_bytes()))),
        _ => Err(ErrorKind::InvalidAlgorithm.into()),
    }
}

impl Signer<Vec<u8>> for Hs256 {
    fn try_sign(&self, message: &[u8]) -> Result<Vec<u8>, signature::Error> {
        Ok(hmac::sign(&self.0, message).as_ref().to_vec())
    }
}

impl JwtSigner for Hs256 {
    fn algorithm(&self) -> Algorithm {
        Algorithm::HS256
    }
}

/// A key with its algorithm.
struct KeyVerifier {
    algorithm: Algorithm,
    key: VerificationKey,
}

enum VerificationKey {
    Hs256(Hs256),
    Rsa { algorithm: &'static RsaParameters, n: Vec<u8>, e: Vec<u8> },
    Other { algorithm: &'static dyn VerificationAlgorithm, key: Vec<u8> },
}

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>, Error> {
    if algorithm.family() != key.family() {
        return Err(ErrorKind::InvalidAlgorithm.into());
    }
    let key = match (algorithm, key.kind(), rsa(*algorithm)) {
        (_, DecodingKeyKind::RsaModulusExponent { n, e }, Some(algorithm)) => {
            VerificationKey::Rsa { algorithm, n: n.clone(), e: e.clone() }
        }
        (Algorithm::HS256, DecodingKeyKind::SecretOrDer(secret), _) => {
            VerificationKey::Hs256(Hs256::new(secret))
        }
        (_, DecodingKeyKind::SecretOrDer(key), _) => {
            let algorithm = public_key(*algorithm).ok_or(ErrorKind::InvalidAlgorithm)?;
            VerificationKey::Other { algorithm, key: key.clone() }
        }
        _ => return Err(ErrorKind::InvalidKeyFormat.into()),
    };
    Ok(Box::new(KeyVerifier { algorithm: *algorithm, key }))
}

fn rsa(algorithm: Algorithm) -> Option<&'static RsaParameters> {
    match algorithm {
        Algorithm::RS256 => Some(&ring::signature::RSA_PKCS1_2048_8192_SHA256),
        Algorithm::RS384 => Some(&ring::signature::RSA_PKCS1_2048_8192_SHA384),
        Algorithm::RS512 => Some(&ring::signature::RSA_PKCS1_2048_8192_SHA512),
        Algorithm::PS256 => Some(&ring::signature::RSA_PSS_2048_8192_SHA256),
        Algorithm::PS384 => Some(&ring::signature::RSA_PSS_2048_8192_SHA384),
        Algorithm::PS512 => Some(&ring::signature::RSA_PSS_2048_8192_SHA512),
        _ => None,
    }
}

fn public_key(algorithm: Algorithm) -> Option<&'static dyn VerificationAlgorithm> {
    match algorithm {
        Algorithm::ES256 => Some(&ring::signature::ECDSA_P256_SHA256_FIXED),
        Algorithm::ES384 => Some(&ring::signature::ECDSA_P384_SHA384_FIXED),
        Algorithm::EdDSA => Some(&ring::signature::ED25519),
        _ => rsa(algorithm).map(|algorithm| algorithm as &dyn VerificationAlgorithm),
    }
}

impl Verifier<Vec<u8>> for KeyVerifier {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), signature::Error> {
        match &self.key {
            VerificationKey::Hs256(Hs256(key)) => hmac::verify(key, message, signature),
            VerificationKey::Rsa { algorithm, n, e } => {
                RsaPublicKeyComponents { n, e }.verify(algorithm, message, signature)
            }
            VerificationKey::Other { algorithm, key } => {
                UnparsedPublicKey::new(*algorithm, key).verify(message, signature)
            }
        }
        .map_err(|_| signature::Error::new())
    }
}

impl JwtVerifier for KeyVerifier {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}
