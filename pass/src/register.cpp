// Registers the pass with LLVM, which has no C interface for that. What it does is in Rust.

#include "llvm-c/Core.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Passes/PassPlugin.h"

using namespace llvm;

// Changes the module as the options say. Returns 0 unchanged, 1 changed, 2 failed; then there is a
// message in `error`, which the caller frees with LLVMDisposeMessage.
extern "C" int nvabi_instrument(LLVMModuleRef module, const char *options, size_t size, bool deferred,
                                char **error);

// What it deferred, when the module is optimised. Returns the same.
extern "C" int nvabi_settle(LLVMModuleRef module, char **error);

namespace {

PreservedAnalyses preserved(Module &module, int outcome, char *error) {
    if (outcome == 2) {
        module.getContext().emitError(Twine("nvabi: ") + error);
        LLVMDisposeMessage(error);
    }
    return outcome == 0 ? PreservedAnalyses::all() : PreservedAnalyses::none();
}

struct Trace : PassInfoMixin<Trace> {
    std::string options;
    bool deferred;

    Trace(StringRef options, bool deferred) : options(options), deferred(deferred) {}

    PreservedAnalyses run(Module &module, ModuleAnalysisManager &) {
        char *error = nullptr;
        int outcome = nvabi_instrument(wrap(&module), options.data(), options.size(), deferred, &error);
        return preserved(module, outcome, error);
    }

    static bool isRequired() { return true; }
};

struct Settle : PassInfoMixin<Settle> {
    PreservedAnalyses run(Module &module, ModuleAnalysisManager &) {
        char *error = nullptr;
        int outcome = nvabi_settle(wrap(&module), &error);
        return preserved(module, outcome, error);
    }

    static bool isRequired() { return true; }
};

} // namespace

extern "C" void nvabi_register(PassBuilder &builder) {
    builder.registerPipelineEarlySimplificationEPCallback(
        [](ModulePassManager &passes, OptimizationLevel) { passes.addPass(Trace("", true)); });
    builder.registerOptimizerLastEPCallback(
        [](ModulePassManager &passes, OptimizationLevel) { passes.addPass(Settle()); });
    builder.registerPipelineParsingCallback(
        [](StringRef name, ModulePassManager &passes, ArrayRef<PassBuilder::PipelineElement>) {
            if (!name.consume_front("nvabi-trace")) {
                return false;
            }
            if (!name.empty() && !(name.consume_front("<") && name.consume_back(">"))) {
                return false;
            }
            passes.addPass(Trace(name, false));
            return true;
        });
}
