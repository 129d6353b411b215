// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package dryrun

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// current is an object as it is planned, or else on the server: as the module
// read it, or as it is now.
func (o *Objects) current(ctx context.Context, at place, from origin) (is, base *unstructured.Unstructured, err error) {
	o.mu.Lock()
	obj, seen := o.planned[at.resource][at.key], o.seen[at]
	o.mu.Unlock()
	switch {
	case obj != nil:
		return obj.state, obj.base, nil
	case seen != nil:
		return seen, seen, nil
	}
	is, err = o.fetch(ctx, from)
	return is, is, err
}

// fetch reads an object from the server, nil for one that is not there. Where
// the role forbids that, it is listed by name. The error is the server's answer.
func (o *Objects) fetch(ctx context.Context, from origin) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	err := from.ask(ctx, from.url, &u.Object)
	if apierrors.IsForbidden(err) {
		list := map[string]any{}
		at := from.url
		slash := strings.LastIndexByte(at.Path, '/')
		at.RawQuery = url.Values{"fieldSelector": {"metadata.name=" + at.Path[slash+1:]}, "limit": {"1"}}.Encode()
		at.Path = at.Path[:slash]
		if listErr := from.ask(ctx, at, &list); !apierrors.IsForbidden(listErr) {
			items, _ := list["items"].([]any)
			if listErr == nil && len(items) == 0 {
				return nil, nil
			}
			if err = listErr; err == nil {
				u.Object, _ = items[0].(map[string]any)
			}
		}
	}
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return u, nil
}

// ask gets JSON from the server.
func (from origin) ask(ctx context.Context, at url.URL, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return err
	}
	req.Header = from.header.Clone()
	req.Header.Set("Accept", runtime.ContentTypeJSON)
	resp, err := from.server.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		var status metav1.Status
		if json.Unmarshal(text, &status) != nil || status.Code == 0 {
			status = metav1.Status{Code: int32(resp.StatusCode), Reason: reasonOf(resp.StatusCode), Message: string(text), Status: metav1.StatusFailure}
		}
		return &apierrors.StatusError{ErrStatus: status}
	}
	return utiljson.Unmarshal(text, into)
}

func reasonOf(code int) metav1.StatusReason {
	switch code {
	case http.StatusNotFound:
		return metav1.StatusReasonNotFound
	case http.StatusForbidden:
		return metav1.StatusReasonForbidden
	}
	return metav1.StatusReasonUnknown
}

// hasStatus reports whether the status of a kind is a subresource of its own. Of
// custom resources the definition tells; where it cannot be read, it is held to
// be one.
func (o *Objects) hasStatus(ctx context.Context, t Target, from origin) bool {
	if !strings.Contains(t.Resource.Group, ".") || strings.HasSuffix(t.Resource.Group, ".k8s.io") {
		return true
	}
	group := t.Resource.GroupResource()
	name := group.String()
	state, _, held := o.Planned(definitions, Key{Name: name})
	if !held {
		o.mu.Lock()
		none, known := o.noStatus[group]
		o.mu.Unlock()
		if known {
			return !none
		}
		before, _, _ := strings.Cut(from.url.Path, "/apis/")
		from.url.Path = before + "/apis/" + definitions.Group + "/" + definitions.Version + "/" + definitions.Resource + "/" + name
		var err error
		if state, err = o.fetch(ctx, from); err != nil || state == nil {
			return true
		}
	}
	has := statusOf(state, t.Resource.Version)
	if !held {
		o.mu.Lock()
		o.noStatus[group] = !has
		o.mu.Unlock()
	}
	return has
}

// statusOf reports whether a version of a definition has the status apart.
func statusOf(definition *unstructured.Unstructured, name string) bool {
	if definition == nil {
		return true
	}
	versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
	for _, v := range versions {
		if version, _ := v.(map[string]any); version["name"] == name {
			_, has, _ := unstructured.NestedMap(version, "subresources", "status")
			return has
		}
	}
	return true
}

// objectURL is the URL of the object that a request is about, or of the
// collection to which it adds one.
func objectURL(u url.URL, t Target) url.URL {
	u.RawQuery = ""
	if t.Subresource != "" {
		u.Path = strings.TrimSuffix(strings.TrimSuffix(u.Path, "/"), "/"+t.Subresource)
	}
	u.Path = strings.TrimSuffix(u.Path, "/")
	u.RawPath = ""
	return u
}
