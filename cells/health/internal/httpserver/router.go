// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package httpserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/munnerz/goautoneg"

	"github.com/skep-operator/skep/runtime/printable"
)

// Router serves paths as they are written, cleaned ones of the versioned API, and nothing else: no redirects, and errors
// in the format of the original.
type Router map[string]http.HandlerFunc

// ServeHTTP implements http.Handler.
func (r Router) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if handle, ok := r[canonical(req.URL.Path)]; ok {
		handle(w, req)
		return
	}
	WriteError(w, http.StatusNotFound, fmt.Sprintf("path %s was not found", req.URL.EscapedPath()))
}

// canonical cleans a path of the versioned API: slashes at the end, double slashes, and dots.
func canonical(p string) string {
	if clean := path.Clean(p); strings.HasPrefix(p, "/v1/") && strings.HasPrefix(clean, "/v1/") {
		return clean
	}
	return p
}

// Producing rejects clients that do not accept the media type of handle.
func Producing(mediaType string, handle http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if accept := r.Header.Values("Accept"); len(accept) > 0 && !accepts(strings.Join(accept, ","), mediaType) {
			WriteError(w, http.StatusNotAcceptable, fmt.Sprintf("unsupported media type requested, only [%s] are available", mediaType))
			return
		}
		handle(w, r)
	}
}

func accepts(header, mediaType string) bool {
	kind, subtype, _ := strings.Cut(mediaType, "/")
	return slices.ContainsFunc(goautoneg.ParseAccept(header), func(a goautoneg.Accept) bool {
		return a.Q > 0 && (a.Type == "*" || a.Type == kind) && (a.SubType == "*" || a.SubType == subtype)
	})
}

// GetOnly rejects other methods.
func GetOnly(handle http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			w.Header().Set("Allow", http.MethodGet)
			WriteError(w, http.StatusMethodNotAllowed, fmt.Sprintf("method %s is not allowed, but [GET] are", r.Method))
			return
		}
		handle(w, r)
	}
}

// WriteError sends an error.
func WriteError(w http.ResponseWriter, code int, message string) {
	text, err := json.Marshal(struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	}{code, message})
	if err != nil { // of a number and a string
		text = []byte("{}")
	}
	Write(w, code, "application/json", string(text))
}

// WriteText sends plain text.
func WriteText(w http.ResponseWriter, code int, text string) {
	Write(w, code, "text/plain; charset=utf-8", text)
}

// Write sends a response. What does not print in it is escaped as by [printable.Text]. A client that is gone is no error.
func Write(w http.ResponseWriter, code int, contentType, text string) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(code)
	_, _ = io.WriteString(w, printable.Text(text))
}

// WriteJSON sends a value, or an error if it cannot be encoded.
func WriteJSON(w http.ResponseWriter, v any) {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		WriteError(w, http.StatusInternalServerError, err.Error())
		return
	}
	Write(w, http.StatusOK, "application/json", text.String())
}
