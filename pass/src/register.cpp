// Registers the pass with LLVM, which has no C interface for that. What it does is in Rust.

#include "llvm-c/Core.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Passes/PassPlugin.h"

using namespace llvm;

// Changes the module as the options say. Returns 0 unchanged, 1 changed, 2 failed; then there is a
// message in `error`, which the caller frees with LLVMDisposeMessage.
extern "C" int nvabi_instrument(LLVMModuleRef module, const char *options, size_t size, char **error);


namespace {

struct Trace : PassInfoMixin<Trace> {
    std::string options;

    explicit Trace(StringRef options) : options(options) {}

    PreservedAnalyses run(Module &module, ModuleAnalysisManager &) {
        char *error = nullptr;
        switch (nvabi_instrument(wrap(&module), options.data(), options.size(), &error)) {
        case 0:
            return PreservedAnalyses::all();
        case 2:
            module.getContext().emitError(Twine("nvabi: ") + error);
            LLVMDisposeMessage(error);
        }
        return PreservedAnalyses::none();
    }

    static bool isRequired() { return true; }
};

} // namespace

extern "C" void nvabi_register(PassBuilder &builder) {
    builder.registerPipelineEarlySimplificationEPCallback(
        [](ModulePassManager &passes, OptimizationLevel) { passes.addPass(Trace("")); });
    builder.registerPipelineParsingCallback(
        [](StringRef name, ModulePassManager &passes, ArrayRef<PassBuilder::PipelineElement>) {
            if (!name.consume_front("nvabi-trace")) {
                return false;
            }
            if (!name.empty() && !(name.consume_front("<") && name.consume_back(">"))) {
                return false;
            }
            passes.addPass(Trace(name));
            return true;
        });
}
