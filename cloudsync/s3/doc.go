// Package s3 is a bucket in a store with the protocol of Amazon S3, such as Amazon's own, MinIO,
// Cloudflare R2, Backblaze B2, Ceph and Wasabi:
//
//	s3://BUCKET/PREFIX              the endpoint is from the environment or the profile, else
//	                                Amazon
//	s3:https://HOST/BUCKET/PREFIX   the endpoint is in the URL; http:// works as well
//
// Credentials, region and endpoint are found where the tools of Amazon find them: in
// AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION and AWS_ENDPOINT_URL_S3
// or AWS_ENDPOINT_URL; in the profile that AWS_PROFILE names, of the files ~/.aws/config and
// ~/.aws/credentials; or in the service of the machine. Another endpoint than Amazon's is used with
// path style, that is HOST/BUCKET/NAME.
//
// A put is one request with If-None-Match: *. So the store has to support conditional writes. One
// that accepts the header and ignores it would lose data, and bucket.Probe refuses it. A get is one
// request, and so is a list of up to 1000 names. The retries of the client library are switched
// off: bucket.Retry retries, and counts.
//
// Creation times are in whole seconds. That of a put is the Date of its answer. A store accepts at
// most 5 GiB in one put.
//
// The package imports cloudsync/bucket and internal/base of the module. Only programs that need it
// import it. Invariants: S1: no request changes an object that exists. S2: one call of Get makes
// one request, and a second one only for a range of an empty object. A Bucket is safe for
// concurrent use. It starts no goroutines but those of net/http, which end with the calls and with
// Close. The package may change with any release.
package s3
