//! Randomness for secrets, from the operating system by way of the crypto library.

/// Lower case, safe in URLs, headers and shells, without the look-alikes i, l, o and u.
const DIGITS: &[u8; 32] = b"0123456789bcdfghjkmnpqrstvwxyzae";

/// Text of five random bits a character.
pub fn random_text(chars: usize) -> String {
    let mut bytes = vec![0u8; chars];
    fill_random(&mut bytes);
    bytes.iter().map(|byte| char::from(DIGITS[usize::from(byte & 31)])).collect()
}

/// Bits for the ids of the domain.
pub fn random_bits() -> u128 {
    let mut bytes = [0u8; 16];
    fill_random(&mut bytes);
    u128::from_le_bytes(bytes)
}

pub fn fill_random(bytes: &mut [u8]) {
    // A machine without randomness cannot make secrets; going on with guessable ones would be worse than ending.
    aws_lc_rs::rand::fill(bytes).expect("the operating system gives random bytes");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_differ_and_have_their_length() {
        assert_eq!(random_text(40).len(), 40);
        assert_ne!(random_text(40), random_text(40));
        assert_ne!(random_bits(), random_bits());
    }
}
