# Spack: `spack repo create cairn-repo`, put this into packages/cairn/ of the folder that it names, `spack repo add` that folder,
# and then, in Cairn's source folder, `spack dev-build cairn@0.2.0`.
from spack.package import *

try:
    from spack_repo.builtin.build_systems.cmake import CMakePackage
    from spack_repo.builtin.build_systems.cuda import CudaPackage
except ImportError:  # Spack before 1.0 has them in spack.package
    pass


class Cairn(CMakePackage, CudaPackage):
    """Trains BERT in C and fits the training you want into the memory you have."""

    homepage = "https://example.org/cairn"

    license("Apache-2.0")

    version("0.2.0")

    variant("hdf5", default=True, description="Pretraining data (shards)")
    variant("wikipedia", default=True, description="Wikipedia's dumps")
    variant("gloo", default=True, description="Several ranks")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.22:", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("xxhash")
    depends_on("onednn")
    depends_on("hdf5", when="+hdf5")
    depends_on("expat", when="+wikipedia")
    depends_on("bzip2", when="+wikipedia")
    depends_on("zlib-api", when="+wikipedia")
    depends_on("gloo", when="+gloo")
    depends_on("nccl", when="+cuda+gloo")

    def cmake_args(self):
        switches = {
            "WITH_CUDA": "+cuda",
            "WITH_HDF5": "+hdf5",
            "WITH_EXPAT": "+wikipedia",
            "WITH_BZ2": "+wikipedia",
            "WITH_ZLIB": "+wikipedia",
            "WITH_GLOO": "+gloo",
        }
        args = [self.define(name, self.spec.satisfies(variant)) for name, variant in switches.items()]
        return args + [self.define("BUILD_TESTING", self.run_tests)]

    def setup_run_environment(self, env):
        env.prepend_path("MANPATH", self.prefix.share.man)
