// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
)

// request is a request of a module's client.
type request struct {
	method      string
	ref         Ref // without a name for a collection
	fields      string
	contentType string // of the body
	body        []byte
	// tentative says that there is another way where the role forbids this one.
	tentative bool
	// headOnly says that of the objects of the answer it is enough to know which they are.
	headOnly bool
}

// response is what came of a request that was answered with success.
type response struct {
	code int
	body []byte
}

// newREST makes the client under a module's client. It serves all groups, and decodes
// errors only.
func newREST(config *rest.Config) (rest.Interface, error) {
	statuses := runtime.NewScheme()
	metav1.AddToGroupVersion(statuses, schema.GroupVersion{Version: "v1"})
	config.NegotiatedSerializer = serializer.NewCodecFactory(statuses).WithoutConversion()
	return rest.UnversionedRESTClientFor(config)
}

// send sends a request once: the work queues own the pauses before another attempt.
func (c *client) send(ctx context.Context, r request) (response, error) {
	if err := checkNames(r.ref); err != nil {
		return response{}, err
	}
	if err := c.permissions.waiting(verbOf(r.method, r.ref, false), r.ref); err != nil {
		return response{}, err
	}
	req := c.rest.Verb(r.method).AbsPath(pathOf(r.ref)...).
		SetHeader("Accept", runtime.ContentTypeJSON).
		MaxRetries(0)
	if r.fields != "" {
		req.Param("fieldSelector", r.fields)
	}
	if r.fields != "" && r.method == http.MethodGet {
		req.Param("limit", "1")
	}
	if r.body != nil {
		body, err := opaqueField(ctx).unfold(r.body)
		if err == nil {
			body, err = remainderIn(ctx).unfold(body)
		}
		if err != nil {
			return response{}, fmt.Errorf("encoding %s: %w", r.ref, err)
		}
		req.SetHeader("Content-Type", r.contentType).Body(body)
	}
	result := req.Do(OwnPauses(ctx))
	var resp response
	result.StatusCode(&resp.code)
	err := result.Error()
	if err != nil {
		return resp, c.explain(ctx, r, err)
	}
	resp.body, _ = result.Raw()
	var contentType string
	if result.ContentType(&contentType); !isJSON(contentType) {
		return resp, expected{method: r.method, ref: r.ref}.invalid(resp.code, "content of type %q", contentType)
	}
	if r.headOnly {
		resp.body = headsOf(resp.body)
		return resp, awaitTurn(ctx, resp.body)
	}
	if resp.body, err = opaqueField(ctx).fold(ctx, resp.body); err != nil {
		return resp, err
	}
	resp.body = remainderIn(ctx).fold(resp.body)
	return resp, awaitTurn(ctx, resp.body)
}

// explain makes of an error what those who decide upon it need to know.
func (c *client) explain(ctx context.Context, r request, err error) error {
	var invalid *InvalidResponseError
	if errors.As(err, &invalid) {
		return invalid
	}
	if status := apierrors.APIStatus(nil); errors.As(err, &status) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
		code := int(status.Status().Code)
		if code < http.StatusInternalServerError && code != http.StatusTooManyRequests {
			return expected{method: r.method, ref: r.ref}.invalid(code, "no Status, %v", err)
		}
	}
	if apierrors.IsForbidden(err) && !r.tentative {
		return c.permissions.refused(ctx, verbOf(r.method, r.ref, false), r.ref, err)
	}
	return err
}

// verbOf is the verb that the role has to allow for a request.
func verbOf(method string, ref Ref, watch bool) string {
	switch {
	case method == http.MethodGet && ref.Name != "":
		return "get"
	case method == http.MethodGet && watch:
		return "watch"
	case method == http.MethodGet:
		return "list"
	case method == http.MethodDelete && ref.Name == "":
		return "deletecollection"
	}
	return verbs[method]
}

// pathOf are the parts of the path of an object, or of a collection.
func pathOf(r Ref) []string {
	parts := []string{"apis", r.Resource.Group, r.Resource.Version}
	if r.Resource.Group == "" {
		parts = []string{"api", r.Resource.Version}
	}
	if r.Namespace != "" {
		parts = append(parts, "namespaces", r.Namespace)
	}
	parts = append(parts, r.Resource.Resource)
	if r.Name != "" {
		parts = append(parts, r.Name)
	}
	if r.Subresource != "" {
		parts = append(parts, r.Subresource)
	}
	return parts
}

// maxNameLength is the length of the longest name of an object.
const maxNameLength = 253

// checkNames returns the error that an object does not exist, or a collection, for a name that none can have: names come from
// what others write, and would lead to another path with the operator's rights.
func checkNames(r Ref) error {
	for _, name := range []string{r.Namespace, r.Name} {
		if name != "" && !canBeName(name) {
			return fmt.Errorf("%.300q is no name, and was not asked for: %w", name, apierrors.NewNotFound(r.Resource.GroupResource(), r.Name))
		}
	}
	return nil
}

// canBeName reports whether a text can be one part of a path and the value of a field selector. Kinds have stricter rules, which the
// API server knows.
func canBeName(name string) bool {
	outside := func(r rune) bool { return r <= ' ' || r > '~' || r == ',' || r == '=' || r == '!' || r == '\\' }
	return len(name) <= maxNameLength && len(content.IsPathSegmentName(name)) == 0 && !strings.ContainsFunc(name, outside)
}

type ownPausesKey struct{}

// OwnPauses marks requests of a caller that keeps the pauses itself that the API
// server asks for with Retry-After. To other callers the header is not shown: client-go
// would keep them inside the request, where neither health nor a work queue knows.
func OwnPauses(ctx context.Context) context.Context {
	return context.WithValue(ctx, ownPausesKey{}, true)
}

// hidePauses takes from a response what client-go would wait for.
func hidePauses(req *http.Request, resp *http.Response) {
	if resp != nil && req.Context().Value(ownPausesKey{}) == nil {
		resp.Header.Del("Retry-After")
	}
}
