//! Instruction sets: detected at run time, once per call. Tests can choose any that the machine has.

use super::Block;
#[cfg(target_arch = "x86_64")]
use super::avx2::Avx2;
#[cfg(target_arch = "x86_64")]
use super::avx512::Avx512;
#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
use super::neon::Neon;
use super::scalar::Scalar;
#[cfg(target_arch = "x86_64")]
use super::sse2::Sse2;

/// An instruction set that this machine has. Only detection creates one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Isa(Set);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Set {
    Scalar,
    #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
    Neon,
    #[cfg(target_arch = "x86_64")]
    Sse2,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Set {
    /// All that were compiled, from the slowest to the fastest.
    const ALL: &[Self] = &[
        Self::Scalar,
        #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
        Self::Neon,
        #[cfg(target_arch = "x86_64")]
        Self::Sse2,
        #[cfg(target_arch = "x86_64")]
        Self::Avx2,
        #[cfg(target_arch = "x86_64")]
        Self::Avx512,
    ];

    fn is_available(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => Avx2::is_available(),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => Avx512::is_available(),
            // The others are part of their architectures.
            _ => true,
        }
    }
}

/// A routine written once over [`Block`]. `run` must be `#[inline(always)]`, so that it is compiled inside
/// the function that enables the instructions.
pub(crate) trait Kernel {
    type Output;

    fn run<B: Block>(self) -> Self::Output;
}

impl Isa {
    /// Returns the fastest instruction set of this machine.
    ///
    /// In a build with `--cfg forebay_scalar`, which shows what instruction sets gain, it is the slowest.
    #[must_use]
    pub fn detect() -> Self {
        if cfg!(forebay_scalar) {
            return Self(Set::Scalar);
        }
        let fastest = Set::ALL.iter().copied().rev().find(|set| set.is_available());
        Self(fastest.unwrap_or(Set::Scalar))
    }

    /// Returns all instruction sets of this machine, for tests that compare them.
    #[must_use]
    pub fn available() -> Vec<Self> {
        Set::ALL.iter().copied().filter(|set| set.is_available()).map(Self).collect()
    }

    /// Whether [`Block::compress`] is a single instruction. If not, work that does without it is faster.
    pub(crate) fn has_compress(self) -> bool {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Set::Avx512 => true,
            _ => false,
        }
    }

    #[inline]
    #[allow(unsafe_code)]
    pub(crate) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        match self.0 {
            Set::Scalar => kernel.run::<Scalar>(),
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            Set::Neon => kernel.run::<Neon>(),
            #[cfg(target_arch = "x86_64")]
            Set::Sse2 => kernel.run::<Sse2>(),
            // SAFETY: this variant is only created where the instructions were detected.
            #[cfg(target_arch = "x86_64")]
            Set::Avx2 => unsafe { super::avx2::run(kernel) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Set::Avx512 => unsafe { super::avx512::run(kernel) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_compare_every_set_of_the_architecture() {
        let names: Vec<_> = Isa::available().iter().map(|isa| format!("{:?}", isa.0)).collect();
        let always = match std::env::consts::ARCH {
            "aarch64" => vec!["Scalar", "Neon"],
            "x86_64" => vec!["Scalar", "Sse2"],
            _ => vec!["Scalar"],
        };
        assert_eq!(names[..always.len()], always);
        assert!(Isa::available().contains(&Isa::detect()));
    }
}
