// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/skep-operator/skep/resources/api"
)

// servedVersions knows in which version a definition is asked for that does not serve the newest. Modules read and
// write each kind in its newest version: the API server drops the fields that the version of a request does not
// have, when it reads an object and so when it writes one, whatever was to be written.
type servedVersions struct {
	log *slog.Logger

	mu    sync.Mutex
	older map[schema.GroupResource]string
}

func newServedVersions(log *slog.Logger) *servedVersions {
	return &servedVersions{log: log, older: map[schema.GroupResource]string{}}
}

// inUse returns the version that is asked for in place of the newest, "" for the newest.
func (s *servedVersions) inUse(r schema.GroupResource) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.older[r]
}

// use records the version that is served, of those that there are, the newest first.
func (s *servedVersions) use(r schema.GroupResource, version string, versions []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.older[r]
	if version == versions[0] {
		version = ""
	}
	switch {
	case version == before:
		return
	case version == "":
		delete(s.older, r)
		s.log.Info("the newest version of the kind is served now", "resource", r, "version", versions[0], "before", before)
	default:
		s.older[r] = version
		s.log.Info("the installed definition does not serve the newest version of the kind, using an older one", "resource", r, "version", version, "newest", versions[0])
	}
}

// versioned sends the requests for kinds that have several versions in the newest one that is served.
type versioned struct {
	*guardedTransport
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper. Requests in another version than the newest are the caller's business.
func (v versioned) RoundTrip(req *http.Request) (*http.Response, error) {
	ref, isResource := refOf(req.URL.Path)
	resource := ref.Resource.GroupResource()
	versions := api.Versions(resource)
	if !isResource || len(versions) < 2 || ref.Resource.Version != versions[0] {
		return v.next.RoundTrip(req)
	}
	version := versions[0]
	if v.served.inUse(resource) != "" { // the definition may serve the newest by now
		found, err := v.find(req.Context(), resource, versions)
		if err != nil {
			return refuse(req, err)
		}
		version = found
	}
	sent, err := inVersion(req, ref.Resource, version)
	if err != nil {
		return refuse(req, err)
	}
	resp, err := v.next.RoundTrip(sent)
	if err != nil || !isUnserved(resp) {
		return resp, err
	}
	found, err := v.find(req.Context(), resource, versions)
	if err != nil || found == version {
		return resp, nil
	}
	if sent, err = inVersion(req, ref.Resource, found); err != nil {
		return resp, nil
	}
	_ = resp.Body.Close()
	return v.next.RoundTrip(sent)
}

// isUnserved reports whether the API server knows no such resource in that version: of an object that does not exist it
// says so in a Status.
func isUnserved(resp *http.Response) bool {
	return resp.StatusCode == http.StatusNotFound && !isJSON(resp.Header.Get("Content-Type"))
}

// find asks the API server for the newest version in which a resource is served, and returns the newest that there is
// if it is served in none.
func (v versioned) find(ctx context.Context, r schema.GroupResource, versions []string) (string, error) {
	for _, version := range versions {
		serves, err := v.serves(ctx, r.WithVersion(version))
		if err != nil {
			return "", err
		}
		if serves {
			v.served.use(r, version, versions)
			return version, nil
		}
	}
	return versions[0], nil
}

// serves asks the API server whether it serves a resource. Every user may ask.
func (v versioned) serves(ctx context.Context, r schema.GroupVersionResource) (bool, error) {
	path := "/apis/" + r.Group + "/" + r.Version
	body, status, err := v.get(ctx, path)
	switch {
	case err != nil:
		return false, fmt.Errorf("asking for the versions of %s: %w", r.GroupResource(), err)
	case status == http.StatusNotFound:
		return false, nil
	case status != http.StatusOK:
		return false, fmt.Errorf("asking for the versions of %s: GET %s answered %d %s", r.GroupResource(), path, status, http.StatusText(status))
	}
	var list metav1.APIResourceList
	if err := json.Unmarshal(body, &list); err != nil || list.Kind != "APIResourceList" || list.GroupVersion != r.GroupVersion().String() {
		return false, &InvalidResponseError{Method: http.MethodGet, Path: path, Code: status, What: "no list of the resources of " + r.GroupVersion().String()}
	}
	return slices.ContainsFunc(list.APIResources, func(has metav1.APIResource) bool { return has.Name == r.Resource }), nil
}

// inVersion returns a request as it is in a version: its path, and the object in its body. The request itself stays as it is.
func inVersion(req *http.Request, r schema.GroupVersionResource, version string) (*http.Request, error) {
	sent := req.Clone(req.Context())
	if req.Body != nil && req.GetBody != nil {
		body, err := req.GetBody()
		if err != nil {
			return nil, err
		}
		sent.Body = body
	}
	if version == r.Version {
		return sent, nil
	}
	in := func(version string) string { return "/apis/" + r.Group + "/" + version + "/" }
	sent.URL.Path = strings.Replace(req.URL.Path, in(r.Version), in(version), 1)
	sent.URL.RawPath = ""
	if sent.Body == nil || req.Method != http.MethodPost && req.Method != http.MethodPut {
		return sent, nil
	}
	return sent, setBodyVersion(sent, schema.GroupVersion{Group: r.Group, Version: version}.String())
}

// setBodyVersion sets the apiVersion of the object that a request sends.
func setBodyVersion(req *http.Request, apiVersion string) error {
	defer req.Body.Close()
	text, err := io.ReadAll(req.Body)
	if err != nil {
		return err
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(text, &object); err != nil {
		return fmt.Errorf("%s %s: the object is no JSON: %w", req.Method, req.URL.Path, err)
	}
	object["apiVersion"], _ = json.Marshal(apiVersion)
	if text, err = json.Marshal(object); err != nil {
		return err
	}
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil }
	req.Body, _ = req.GetBody()
	req.ContentLength = int64(len(text))
	return nil
}

// IsVersionOf reports whether an apiVersion, such as cilium.io/v2alpha1, is that of a resource, or another one in which the
// API server may serve it: objects bear the version in which they were read.
func IsVersionOf(apiVersion string, r schema.GroupVersionResource) bool {
	return apiVersion == r.GroupVersion().String() || slices.ContainsFunc(api.Versions(r.GroupResource()), func(version string) bool {
		return apiVersion == r.Group+"/"+version
	})
}
