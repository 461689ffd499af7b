// The few names of Metal that metal_device.mm uses; see Foundation.h beside it.
#pragma once
#import <Foundation/Foundation.h>

#pragma clang assume_nonnull begin

typedef struct {
  NSUInteger width, height, depth;
} MTLSize;
static inline MTLSize MTLSizeMake(NSUInteger width, NSUInteger height, NSUInteger depth) {
  return (MTLSize){width, height, depth};
}
typedef enum : NSUInteger { MTLResourceStorageModeShared = 0 } MTLResourceOptions;
typedef enum : NSUInteger { MTLDataTypeFloat = 3, MTLDataTypeUInt = 33, MTLDataTypeBool = 53 } MTLDataType;
typedef enum : NSUInteger { MTLDispatchTypeSerial = 0, MTLDispatchTypeConcurrent = 1 } MTLDispatchType;
typedef enum : NSUInteger { MTLBarrierScopeBuffers = 1 } MTLBarrierScope;
typedef enum : NSUInteger {
  MTLCommandBufferStatusCompleted = 4,
  MTLCommandBufferStatusError = 5,
} MTLCommandBufferStatus;
enum : NSUInteger { MTLCommandBufferErrorOutOfMemory = 8 };
typedef enum : NSUInteger {
  MTLCommandBufferErrorOptionNone = 0,
  MTLCommandBufferErrorOptionEncoderExecutionStatus = 1,
} MTLCommandBufferErrorOption;
typedef enum : NSUInteger {
  MTLPipelineOptionNone = 0,
  MTLPipelineOptionFailOnBinaryArchiveMiss = 4,
} MTLPipelineOption;
typedef enum : NSUInteger { MTLLanguageVersion3_1 = (3 << 16) + 1 } MTLLanguageVersion;
typedef enum : NSInteger { MTLMathModeSafe = 0, MTLMathModeRelaxed = 1, MTLMathModeFast = 2 } MTLMathMode;

#define MTL_ERROR NSError* _Nullable __autoreleasing* _Nullable

@protocol MTLAllocation <NSObject>
@end
@protocol MTLBuffer <MTLAllocation>
@property(readonly) void* contents;
@property(readonly) NSUInteger length;
@end
@protocol MTLResidencySet <NSObject>
- (void)addAllocation:(id<MTLAllocation>)allocation;
- (void)removeAllocation:(id<MTLAllocation>)allocation;
- (void)commit;
- (void)requestResidency;
@end
@interface MTLResidencySetDescriptor : NSObject
@end

@protocol MTLFunction <NSObject>
@end
@interface MTLFunctionConstantValues : NSObject
- (void)setConstantValue:(const void*)value type:(MTLDataType)type atIndex:(NSUInteger)index;
@end
@interface MTLCompileOptions : NSObject
@property MTLLanguageVersion languageVersion;
@property MTLMathMode mathMode;
@end
@protocol MTLLibrary <NSObject>
@property(readonly) NSArray<NSString*>* functionNames;
- (nullable id<MTLFunction>)newFunctionWithName:(NSString*)name
                                 constantValues:(MTLFunctionConstantValues*)values
                                          error:(MTL_ERROR)error;
@end

@protocol MTLBinaryArchive;
@interface MTLComputePipelineDescriptor : NSObject
@property(nullable) id<MTLFunction> computeFunction;
@property(copy, nullable) NSArray<id<MTLBinaryArchive>>* binaryArchives;
@end
@interface MTLBinaryArchiveDescriptor : NSObject
@property(copy, nullable) NSURL* url;
@end
@protocol MTLBinaryArchive <NSObject>
- (BOOL)addComputePipelineFunctionsWithDescriptor:(MTLComputePipelineDescriptor*)descriptor
                                            error:(MTL_ERROR)error;
- (BOOL)serializeToURL:(NSURL*)url error:(MTL_ERROR)error;
@end
@protocol MTLComputePipelineState <NSObject>
@property(readonly) NSUInteger maxTotalThreadsPerThreadgroup;
@property(readonly) NSUInteger threadExecutionWidth;
@end
@interface MTLComputePipelineReflection : NSObject
@end

@protocol MTLComputeCommandEncoder <NSObject>
- (void)setComputePipelineState:(id<MTLComputePipelineState>)state;
- (void)setBuffer:(nullable id<MTLBuffer>)buffer offset:(NSUInteger)offset atIndex:(NSUInteger)index;
- (void)setBytes:(const void*)bytes length:(NSUInteger)length atIndex:(NSUInteger)index;
- (void)setThreadgroupMemoryLength:(NSUInteger)length atIndex:(NSUInteger)index;
- (void)dispatchThreadgroups:(MTLSize)threadgroups threadsPerThreadgroup:(MTLSize)threads;
- (void)memoryBarrierWithScope:(MTLBarrierScope)scope;
- (void)endEncoding;
@end
@interface MTLCommandBufferDescriptor : NSObject
@property MTLCommandBufferErrorOption errorOptions;
@end
@protocol MTLCommandBuffer <NSObject>
- (nullable id<MTLComputeCommandEncoder>)computeCommandEncoderWithDispatchType:(MTLDispatchType)type;
- (void)commit;
- (void)waitUntilCompleted;
@property(readonly) MTLCommandBufferStatus status;
@property(nullable, readonly) NSError* error;
@end
@protocol MTLCommandQueue <NSObject>
- (nullable id<MTLCommandBuffer>)commandBufferWithDescriptor:(MTLCommandBufferDescriptor*)descriptor;
- (void)addResidencySet:(id<MTLResidencySet>)set;
@end

@protocol MTLDevice <NSObject>
@property(readonly) NSString* name;
@property(readonly) uint64_t recommendedMaxWorkingSetSize;
@property(readonly) NSUInteger maxBufferLength;
- (nullable id<MTLCommandQueue>)newCommandQueue;
- (nullable id<MTLBuffer>)newBufferWithLength:(NSUInteger)length options:(MTLResourceOptions)options;
- (nullable id<MTLResidencySet>)newResidencySetWithDescriptor:(MTLResidencySetDescriptor*)descriptor
                                                        error:(MTL_ERROR)error;
- (nullable id<MTLLibrary>)newLibraryWithSource:(NSString*)source
                                        options:(nullable MTLCompileOptions*)options
                                          error:(MTL_ERROR)error;
- (nullable id<MTLBinaryArchive>)newBinaryArchiveWithDescriptor:(MTLBinaryArchiveDescriptor*)descriptor
                                                          error:(MTL_ERROR)error;
- (nullable id<MTLComputePipelineState>)
    newComputePipelineStateWithDescriptor:(MTLComputePipelineDescriptor*)descriptor
                                  options:(MTLPipelineOption)options
                               reflection:(MTLComputePipelineReflection* _Nullable __autoreleasing* _Nullable)
                                              reflection
                                    error:(MTL_ERROR)error;
@end
extern "C" id<MTLDevice> _Nullable MTLCreateSystemDefaultDevice(void);

#pragma clang assume_nonnull end
