// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package faultproxy

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	apiwatch "k8s.io/apimachinery/pkg/watch"

	"github.com/skep-operator/skep/resources/clustertest/control"
)

// What spoilt answers have in place of what is right.
const (
	otherName = "spoilt"
	otherUID  = "00000000-5b01-4000-8000-000000000000"
	otherKind = "Spoilt"
	otherAPI  = "spoilt.example.com/v1"

	beyondVersions = "18446744073709551616" // 2^64
)

// hasObject reports whether an answer of a kind has the object of the original.
func hasObject(kind control.SpoiltAnswer) bool {
	switch kind {
	case control.SpoilList, control.SpoilTruncated, control.SpoilContentType, control.SpoilProtobuf, control.SpoilOtherObject, control.SpoilOtherUID,
		control.SpoilVersionZero, control.SpoilVersionEmpty, control.SpoilVersionText, control.SpoilVersionHuge:
		return true
	}
	return false
}

// spoilt turns the answer to a request into one of another kind.
func spoilt(kind control.SpoiltAnswer, method string, f facts, original answer) answer {
	status := func(code int, retryAfter time.Duration, message string) answer {
		how := control.Status{Code: code, RetryAfter: retryAfter, Message: message}
		return statusAnswer(code, statusFor(method, f, how, int(retryAfter.Seconds())))
	}
	switch kind {
	case control.SpoilHTML:
		return page(http.StatusOK)
	case control.SpoilEmpty:
		return jsonAnswer(http.StatusOK, nil)
	case control.SpoilNull:
		return jsonAnswer(http.StatusOK, []byte("null\n"))
	case control.SpoilList:
		return original.edit(listed)
	case control.SpoilTruncated:
		return original.truncated()
	case control.SpoilContentType:
		return original.typed("text/plain; charset=utf-8")
	case control.SpoilProtobuf:
		return original.typed(runtime.ContentTypeProtobuf)
	case control.SpoilStatusSuccess:
		return statusAnswer(http.StatusOK, metav1.Status{TypeMeta: statusType, Status: metav1.StatusSuccess})
	case control.SpoilStatusFailure:
		return statusAnswer(http.StatusOK, statusFor(method, f, control.Status{Code: http.StatusInternalServerError}, 0))
	case control.SpoilOtherObject:
		return original.edit(func(o object) object { o.setIdentity("name", otherName); o.setIdentity("uid", otherUID); return o })
	case control.SpoilOtherUID:
		return original.edit(func(o object) object { o.setIdentity("uid", otherUID); return o })
	case control.SpoilVersionZero:
		return original.versioned("0")
	case control.SpoilVersionEmpty:
		return original.versioned("")
	case control.SpoilVersionText:
		return original.versioned("abc")
	case control.SpoilVersionHuge:
		return original.versioned(beyondVersions)
	case control.SpoilNoContent:
		return answer{code: http.StatusNoContent}
	case control.SpoilRedirect:
		return redirect(http.StatusFound, "page")
	case control.SpoilRedirectLoop:
		return redirect(http.StatusTemporaryRedirect, "loop")
	case control.SpoilUnauthorized:
		return status(http.StatusUnauthorized, 0, "Unauthorized")
	case control.SpoilForbiddenText:
		return text(http.StatusForbidden, "access denied\n")
	case control.SpoilNotFoundText:
		return text(http.StatusNotFound, "404 page not found\n")
	case control.SpoilConflictText:
		return text(http.StatusConflict, "conflict\n")
	case control.SpoilGone:
		return statusAnswer(http.StatusGone, expired())
	case control.SpoilThrottled:
		return status(http.StatusTooManyRequests, time.Second, "")
	case control.SpoilThrottledHour:
		return status(http.StatusTooManyRequests, time.Hour, "")
	case control.SpoilErrorHTML:
		return page(http.StatusInternalServerError)
	case control.SpoilTooLarge:
		return statusAnswer(http.StatusGatewayTimeout, tooLarge())
	}
	panic("no such answer: " + string(kind)) // validateSpoil knows them
}

func contentType(value string) http.Header { return http.Header{"Content-Type": {value}} }

func jsonAnswer(code int, body []byte) answer {
	return answer{code, contentType(runtime.ContentTypeJSON), body}
}

func text(code int, body string) answer {
	return answer{code, contentType("text/plain; charset=utf-8"), []byte(body)}
}

func page(code int) answer {
	body := "<!DOCTYPE html>\n<html><head><title>Please sign in</title></head><body><h1>Please sign in</h1></body></html>\n"
	return answer{code, contentType("text/html; charset=utf-8"), []byte(body)}
}

func redirect(code int, to string) answer {
	return answer{code: code, header: http.Header{"Location": {redirectedPath + to}}}
}

func statusAnswer(code int, status metav1.Status) answer {
	a := jsonAnswer(code, mustMarshal(status))
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		a.header.Set("Retry-After", strconv.Itoa(int(status.Details.RetryAfterSeconds)))
	}
	return a
}

func mustMarshal(value any) []byte {
	body, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("encode an answer: %v", err)) // its fields are plain
	}
	return body
}

// edit changes the object of an answer that has one.
func (a answer) edit(change func(object) object) answer {
	o, ok := a.object()
	if !ok {
		return a
	}
	if event, ok := o["object"].(map[string]any); ok { // of a watch
		o["object"] = map[string]any(change(event))
		return jsonAnswer(a.code, append(mustMarshal(o), '\n'))
	}
	return jsonAnswer(a.code, mustMarshal(change(o)))
}

func (a answer) object() (o object, ok bool) {
	if a.code >= http.StatusMultipleChoices {
		return nil, false
	}
	err := utiljson.Unmarshal(a.body, &o)
	return o, err == nil && o != nil
}

func (a answer) versioned(version string) answer {
	return a.edit(func(o object) object { o.metadata()["resourceVersion"] = version; return o })
}

func (a answer) truncated() answer {
	if _, ok := a.object(); !ok {
		return a
	}
	return jsonAnswer(a.code, a.body[:len(a.body)/2])
}

func (a answer) typed(contentType string) answer {
	if _, ok := a.object(); !ok {
		return a
	}
	a = jsonAnswer(a.code, a.body)
	a.header.Set("Content-Type", contentType)
	return a
}

// object is an object, a list or a Status in JSON.
type object map[string]any

func (o object) text(field string) string {
	s, _ := o[field].(string)
	return s
}

func (o object) part(field string) map[string]any {
	part, ok := o[field].(map[string]any)
	if !ok {
		part = map[string]any{}
		o[field] = part
	}
	return part
}

func (o object) metadata() map[string]any { return o.part("metadata") }

// items are those of a list.
func (o object) items() (items []any, ok bool) {
	items, ok = o["items"].([]any)
	return items, ok || strings.HasSuffix(o.text("kind"), "List")
}

// isBookmark reports whether it is the object of a bookmark, which has no name.
func (o object) isBookmark() bool {
	return o.metadata()["name"] == nil && o.text("kind") != statusType.Kind
}

// setIdentity makes it another object. What has no identity becomes one of another kind.
func (o object) setIdentity(field, value string) {
	_, list := o.items()
	switch {
	case o.text("kind") == statusType.Kind:
		o.part("details")[field] = value
	case list:
		o["apiVersion"], o["kind"] = otherAPI, otherKind+"List"
	case o.isBookmark():
		o["apiVersion"], o["kind"] = otherAPI, otherKind
	default:
		o.metadata()[field] = value
	}
}

// listed makes a list of an object, and an object of a list.
func listed(o object) object {
	items, list := o.items()
	if !list {
		return object{
			"apiVersion": o.text("apiVersion"), "kind": o.text("kind") + "List",
			"metadata": map[string]any{"resourceVersion": o.metadata()["resourceVersion"]}, "items": []any{map[string]any(o)},
		}
	}
	one := object{"metadata": map[string]any{"name": otherName}}
	if len(items) > 0 {
		if first, ok := items[0].(map[string]any); ok {
			one = first
		}
	}
	one["apiVersion"], one["kind"] = o.text("apiVersion"), strings.TrimSuffix(o.text("kind"), "List")
	return one
}

// sent is the object that a create sends, as an answer.
func sent(body []byte, f facts) answer {
	a := jsonAnswer(http.StatusCreated, body)
	if _, ok := a.object(); ok {
		return a
	}
	stub := object{"apiVersion": schema.GroupVersion{Group: f.group, Version: f.version}.String(), "kind": otherKind, "metadata": map[string]any{"name": f.name}}
	return jsonAnswer(http.StatusCreated, mustMarshal(stub))
}

// bookmark is the answer to a watch that tells how far it is, made of a list, which knows the
// kind. It is no further than the watch began: what is spoilt is its form, and a client
// that believes it must not miss an event.
func bookmark(list answer, since string) answer {
	o, ok := list.object()
	if !ok {
		return list
	}
	if since == "" || since == "0" {
		since = "1"
	}
	event := object{"type": string(apiwatch.Bookmark), "object": map[string]any{
		"apiVersion": o.text("apiVersion"), "kind": strings.TrimSuffix(o.text("kind"), "List"),
		"metadata": map[string]any{"resourceVersion": since},
	}}
	return jsonAnswer(http.StatusOK, append(mustMarshal(event), '\n'))
}
