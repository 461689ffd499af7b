// The few names of Foundation that metal_device.mm uses, declared again so that Linux can check its types.
// What this proves is that the file agrees with these declarations, not that they are Apple's.
#pragma once
#include <stddef.h>
#include <stdint.h>

typedef unsigned long NSUInteger;
typedef long NSInteger;
typedef bool BOOL;
#define YES ((BOOL)1)
#define NO ((BOOL)0)
#define nil nullptr

#pragma clang assume_nonnull begin

@protocol NSObject
@end
__attribute__((objc_root_class))
@interface NSObject<NSObject>
+ (instancetype)alloc;
+ (instancetype)new;
- (instancetype)init;
@end

@interface NSString : NSObject
@property(readonly) const char* UTF8String;
- (nullable instancetype)initWithBytes:(const void*)bytes
                                length:(NSUInteger)length
                              encoding:(NSUInteger)encoding;
@end
@interface NSConstantString : NSString {
  const char* bytes_;
  unsigned length_;
}
@end
enum : NSUInteger { NSUTF8StringEncoding = 4 };

@interface NSArray<__covariant T> : NSObject
+ (instancetype)arrayWithObjects:(const T _Nonnull[_Nullable])objects count:(NSUInteger)count;
@property(readonly, nullable) T firstObject;
- (BOOL)containsObject:(T)object;
@end

@interface NSURL : NSObject
@property(readonly, copy, nullable) NSString* path;
- (nullable NSURL*)URLByAppendingPathComponent:(NSString*)component;
@end

@interface NSError : NSObject
@property(readonly) NSInteger code;
@property(readonly, copy) NSString* localizedDescription;
@end

typedef enum : NSUInteger { NSCachesDirectory = 13 } NSSearchPathDirectory;
typedef enum : NSUInteger { NSUserDomainMask = 1 } NSSearchPathDomainMask;
@interface NSFileManager : NSObject
@property(class, readonly) NSFileManager* defaultManager;
- (NSArray<NSURL*>*)URLsForDirectory:(NSSearchPathDirectory)directory
                           inDomains:(NSSearchPathDomainMask)domains;
- (BOOL)fileExistsAtPath:(nullable NSString*)path;
@end

typedef enum : uint64_t {
  NSActivityUserInitiated = 0x00FFFFFFULL,
  NSActivityLatencyCritical = 0xFF00000000ULL,
} NSActivityOptions;
@interface NSProcessInfo : NSObject
@property(class, readonly) NSProcessInfo* processInfo;
- (id<NSObject>)beginActivityWithOptions:(uint64_t)options reason:(NSString*)reason;
- (void)endActivity:(id<NSObject>)activity;
@end

#pragma clang assume_nonnull end
