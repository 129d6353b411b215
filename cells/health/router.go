// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package health

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// router serves exact paths and nothing else: no redirect, no cleaned path, and
// errors in the form that clients of the original know.
type router map[string]http.HandlerFunc

// ServeHTTP implements http.Handler.
func (r router) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if handle, ok := r[req.URL.Path]; ok {
		handle(w, req)
		return
	}
	writeError(w, http.StatusNotFound, fmt.Sprintf("path %s was not found", req.URL.EscapedPath()))
}

// getOnly refuses other methods.
func getOnly(handle http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			w.Header().Set("Allow", http.MethodGet)
			writeError(w, http.StatusMethodNotAllowed, fmt.Sprintf("method %s is not allowed, but [GET] are", r.Method))
			return
		}
		handle(w, r)
	}
}

func writeError(w http.ResponseWriter, code int, message string) {
	text, err := json.Marshal(struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	}{code, message})
	if err != nil { // of a number and a string
		text = []byte("{}")
	}
	write(w, code, "application/json", string(text))
}

func writeText(w http.ResponseWriter, code int, text string) {
	write(w, code, "text/plain; charset=utf-8", text)
}

// write sends an answer. A client that went away is no error.
func write(w http.ResponseWriter, code int, contentType, text string) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(code)
	_, _ = io.WriteString(w, text)
}

// writeJSON sends a value, or an error where it cannot be written as JSON.
func writeJSON(w http.ResponseWriter, v any) {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		writeError(w, http.StatusInternalServerError, err.Error())
		return
	}
	write(w, http.StatusOK, "application/json", text.String())
}
