// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package control

import "slices"

// Spoil gives an answer that no API server gives in that place: what load balancers,
// captive portals, caches and API servers that start or break are seen to answer.
type Spoil struct {
	// Answers are dealt like a shuffled deck of cards: each comes once before any comes
	// twice. None means all.
	Answers []SpoiltAnswer `json:"answers,omitempty"`
	// When says whether the server gets the request. Empty deals every answer both ways.
	When SpoilWhen `json:"when,omitempty"`
}

// SpoilWhen says whether the server gets a request whose answer is spoilt.
type SpoilWhen string

const (
	// SpoilInstead answers in the server's place: nothing was done. An answer with an
	// object has the one that is stored or, for a create, the one that was sent.
	SpoilInstead SpoilWhen = "instead"
	// SpoilAfter lets the server do what it is asked for and spoils its answer.
	SpoilAfter SpoilWhen = "after"
)

// SpoiltAnswer is a kind of answer.
//
// What says "the object" is, for the answer to a list, the list; and for the answer to a
// watch, an event with a bookmark where the watch began, after which the watch ends. A watch never reaches the
// server. An answer of the server that is a failure has no object, and passes.
type SpoiltAnswer string

const (
	// The body is not what was asked for, with code 200.

	SpoilHTML          SpoiltAnswer = "html"           // a page
	SpoilEmpty         SpoiltAnswer = "empty"          // no byte
	SpoilNull          SpoiltAnswer = "null"           // the JSON value null
	SpoilList          SpoiltAnswer = "list"           // a list that has the object, or one object of the list
	SpoilTruncated     SpoiltAnswer = "truncated"      // the first half of the object
	SpoilContentType   SpoiltAnswer = "content-type"   // the object, called text/plain
	SpoilProtobuf      SpoiltAnswer = "protobuf"       // the object in JSON, called protobuf
	SpoilStatusSuccess SpoiltAnswer = "status-success" // a Status that says Success
	SpoilStatusFailure SpoiltAnswer = "status-failure" // a Status that says Failure

	// The object is not the one that was asked for, with code 200.

	SpoilOtherObject  SpoiltAnswer = "other-object"  // of another name and UID; a list or event of another kind
	SpoilOtherUID     SpoiltAnswer = "other-uid"     // of another UID; a list or event of another kind
	SpoilVersionZero  SpoiltAnswer = "version-zero"  // resourceVersion "0"
	SpoilVersionEmpty SpoiltAnswer = "version-empty" // resourceVersion ""
	SpoilVersionText  SpoiltAnswer = "version-text"  // resourceVersion "abc"
	SpoilVersionHuge  SpoiltAnswer = "version-huge"  // resourceVersion 2^64

	// Codes that say little, or come from elsewhere.

	SpoilNoContent     SpoiltAnswer = "no-content"     // 204
	SpoilRedirect      SpoiltAnswer = "redirect"       // 302 to a page
	SpoilRedirectLoop  SpoiltAnswer = "redirect-loop"  // 307 for ever
	SpoilUnauthorized  SpoiltAnswer = "unauthorized"   // 401, a Status
	SpoilForbiddenText SpoiltAnswer = "forbidden-text" // 403, a text
	SpoilNotFoundText  SpoiltAnswer = "not-found-text" // 404, a text: "404 page not found"
	SpoilConflictText  SpoiltAnswer = "conflict-text"  // 409, a text
	SpoilGone          SpoiltAnswer = "gone"           // 410, a Status with the reason Expired
	SpoilThrottled     SpoiltAnswer = "throttled"      // 429, a Status with Retry-After: 1
	SpoilThrottledHour SpoiltAnswer = "throttled-hour" // 429, a Status with Retry-After: 3600
	SpoilErrorHTML     SpoiltAnswer = "error-html"     // 500, a page
	SpoilTooLarge      SpoiltAnswer = "too-large"      // 504, the Status "Too large resource version"
)

// SpoiltAnswers lists all kinds.
func SpoiltAnswers() []SpoiltAnswer {
	return []SpoiltAnswer{
		SpoilHTML, SpoilEmpty, SpoilNull, SpoilList, SpoilTruncated, SpoilContentType, SpoilProtobuf, SpoilStatusSuccess, SpoilStatusFailure,
		SpoilOtherObject, SpoilOtherUID, SpoilVersionZero, SpoilVersionEmpty, SpoilVersionText, SpoilVersionHuge,
		SpoilNoContent, SpoilRedirect, SpoilRedirectLoop, SpoilUnauthorized, SpoilForbiddenText, SpoilNotFoundText, SpoilConflictText,
		SpoilGone, SpoilThrottled, SpoilThrottledHour, SpoilErrorHTML, SpoilTooLarge,
	}
}

// Known reports whether the kind exists.
func (a SpoiltAnswer) Known() bool { return slices.Contains(SpoiltAnswers(), a) }
