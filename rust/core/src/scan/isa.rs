//! Instruction sets: detected at run time, once per call. Tests can choose any that the machine has.

use super::Block;
#[cfg(target_arch = "x86_64")]
use super::avx2::Avx2;
use super::scalar::Scalar;
#[cfg(target_arch = "x86_64")]
use super::sse2::Sse2;

/// An instruction set that this machine has. Only detection creates one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Isa(Set);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Set {
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Sse2,
    Scalar,
}

/// A routine written once over [`Block`]. `run` must be `#[inline(always)]`, so that it is compiled inside
/// the function that enables the instructions.
pub(crate) trait Kernel {
    type Output;

    fn run<B: Block>(self) -> Self::Output;
}

impl Isa {
    /// Returns the fastest instruction set of this machine.
    #[must_use]
    pub fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            if Avx2::is_available() {
                return Self(Set::Avx2);
            }
            return Self(Set::Sse2);
        }
        #[allow(unreachable_code)]
        Self(Set::Scalar)
    }

    /// Returns all instruction sets of this machine, for tests that compare them.
    #[must_use]
    pub fn available() -> Vec<Self> {
        let mut all = vec![Self(Set::Scalar)];
        #[cfg(target_arch = "x86_64")]
        {
            all.push(Self(Set::Sse2));
            if Avx2::is_available() {
                all.push(Self(Set::Avx2));
            }
        }
        all
    }

    #[inline]
    #[allow(unsafe_code)]
    pub(crate) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        match self.0 {
            // SAFETY: this variant is only created where the instructions were detected.
            #[cfg(target_arch = "x86_64")]
            Set::Avx2 => unsafe { super::avx2::run(kernel) },
            #[cfg(target_arch = "x86_64")]
            Set::Sse2 => kernel.run::<Sse2>(),
            Set::Scalar => kernel.run::<Scalar>(),
        }
    }
}
