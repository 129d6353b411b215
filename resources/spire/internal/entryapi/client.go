// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package entryapi

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Client calls the service over a connection, which may be shared.
type Client struct{ Conn grpc.ClientConnInterface }

// Filter selects entries: with this parent, and with exactly these selectors, if there are any.
type Filter struct {
	ParentID  ID
	Selectors []Selector
}

// Page is a part of a list. The last one has no token.
type Page struct {
	Entries []Entry
	Next    string
}

// List returns the page of entries with a token, which has at most size entries. An error is one for which TooLarge holds if they are
// too large for a message: fewer of them may not be.
func (c Client) List(ctx context.Context, f Filter, size int32, token string) (p Page, err error) {
	answer, err := c.call(ctx, "ListEntries", marshalList(f, size, token))
	if err != nil {
		return p, err
	}
	return p, decode("ListEntriesResponse", answer, func(f field) error {
		switch f.number {
		case listedEntries:
			var e Entry
			err := e.unmarshal(f.bytes)
			p.Entries = append(p.Entries, e)
			return err
		case listedPageToken:
			p.Next = string(f.bytes)
		}
		return nil
	})
}

// Count is the number of entries. Servers before 1.9.6 do not know the filter, and count all.
func (c Client) Count(ctx context.Context, f Filter) (n int, err error) {
	answer, err := c.call(ctx, "CountEntries", appendMessage(nil, listFilter, f.marshal()))
	if err != nil {
		return 0, err
	}
	return n, decode("CountEntriesResponse", answer, func(f field) error {
		if f.number == counted {
			n = int(f.varint) //nolint:gosec // of an int32
		}
		return nil
	})
}

// Create creates entries, and returns a result for each in their order. Of the entries in it are the ids and the SPIFFE IDs.
func (c Client) Create(ctx context.Context, entries []Entry) ([]Result, error) {
	var request []byte
	for _, e := range entries {
		request = appendMessage(request, batchItems, e.marshal())
	}
	request = appendMask(request, batchMask, entrySPIFFEID)
	return c.batch(ctx, "BatchCreateEntry", request, len(entries), (*Result).unmarshalCreated)
}

// Delete deletes entries by their ids, and returns a result for each in their order.
func (c Client) Delete(ctx context.Context, ids []string) ([]Result, error) {
	var request []byte
	for _, id := range ids {
		request = appendString(request, batchItems, id)
	}
	return c.batch(ctx, "BatchDeleteEntry", request, len(ids), (*Result).unmarshalDeleted)
}

func (c Client) batch(ctx context.Context, method string, request []byte, count int, unmarshal func(*Result, []byte) error) ([]Result, error) {
	answer, err := c.call(ctx, method, request)
	if err != nil {
		return nil, err
	}
	results := make([]Result, 0, count)
	err = decode(method+"Response", answer, func(f field) error {
		if f.number != batchItems {
			return nil
		}
		var r Result
		err := unmarshal(&r, f.bytes)
		results = append(results, r)
		return err
	})
	if err == nil && len(results) != count {
		err = fmt.Errorf("%s: the server answers with %d results for %d entries", method, len(results), count)
	}
	return results, err
}

// TooLarge reports whether a call has failed because its answer, or its request, is larger than a message can be. gRPC has the code of a
// server that limits the rate for it, and no other sign than the text.
func TooLarge(err error) bool {
	return status.Code(err) == codes.ResourceExhausted && strings.Contains(status.Convert(err).Message(), "larger than max")
}

const service = "/spire.api.server.entry.v1.Entry/"

func (c Client) call(ctx context.Context, method string, request []byte) (answer []byte, err error) {
	return answer, c.Conn.Invoke(ctx, service+method, request, &answer, grpc.ForceCodec(encoded{}))
}

// encoded passes messages that are encoded already.
type encoded struct{}

func (encoded) Name() string { return "proto" }

func (encoded) Marshal(v any) ([]byte, error) { return v.([]byte), nil }

func (encoded) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = data
	return nil
}
